"""How a queue process ended, in words that a person can use."""

from __future__ import annotations

import os
import signal

REPLACE = 75
"""Exit code of a queue process that asks for a new one: a body won't stop, and it can't be stopped from inside."""

HUNG = "it hung: a task held the interpreter past its timeout, so that it had to be killed"


def cause_of_death(status: int) -> str | None:
    """From a wait status; None where it asked for a new one. Its own end is 0 only once it was told to stop: then
    there's nobody to tell, and else a task ended it."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return None if code == REPLACE else f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}"
