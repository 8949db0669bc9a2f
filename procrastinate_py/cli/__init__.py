"""The command line. ``click`` and ``rich`` are imported here only."""

from __future__ import annotations


def main() -> None:
    """The console script ``procrastinate-py``."""
    from .program import program

    program(prog_name="procrastinate-py")
