"""Loops, threads and processes: drives the core through the ports."""
