"""What start() asks of its surroundings."""

from __future__ import annotations

import os

from ..core.errors import ConfigurationError

VARIABLE = "PROCRASTINATE_STOP"

_PACKAGE = __name__.partition(".")[0]
_OFF = ("", "0", "false", "no", "off")


def is_told_to_stop() -> bool:
    """Whether the process's environment says that nothing is to be started; a warning tells so."""
    if os.environ.get(VARIABLE, "").strip().lower() in _OFF:
        return False
    import logging

    logging.getLogger(_PACKAGE).warning("%s is set: no queue process is started", VARIABLE)
    return True


def made_folder(path: str) -> str:
    """Raises ConfigurationError where it can't be used, rather than leaving that to the queue processes."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"run_dir can't be made: {error} (set run_dir to a folder that can)") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigurationError(f"run_dir {path!r} can't be written (set run_dir to a folder that can)")
    return path
