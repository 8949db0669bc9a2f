"""How a command says that it can't be carried out."""

from __future__ import annotations

import click


class Refused(click.ClickException):
    """One line that says what to do. Exit code 1."""
