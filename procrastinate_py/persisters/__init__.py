"""Stores: they carry out transitions and decide nothing."""
