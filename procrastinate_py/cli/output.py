"""What a command shows: tables in colour on a terminal, aligned text elsewhere, JSON where it's asked for.

Everything that may come from a store goes through ``printable``; nothing is ever taken as rich's markup.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..runtime.log_lines import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

COLOURS = {
    "pending": "cyan",
    "running": "blue",
    "completed": "green",
    "failed": "red",
    "expired": "yellow",
    "cancelled": "magenta",
    "ok": "green",
    "warning": "yellow",
    "problem": "red",
    "DEBUG": "bright_black",
    "INFO": "cyan",
    "WARNING": "yellow",
    "ERROR": "red",
    "CRITICAL": "bold red",
}
"""By the word that a cell holds."""


class Output:
    """Where a command's result goes. Errors don't come here: they're raised."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self._console: Console | None = None

    @property
    def is_terminal(self) -> bool:
        return not self.as_json and sys.stdout.isatty()

    @property
    def console(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, emoji=False)
        return self._console

    def json(self, value: Any) -> None:
        """One line. Values that JSON has no form for (an id that is a UUID, say) are told as text."""
        print(json.dumps(value, default=str), flush=True)

    def say(self, text: str = "", style: str | None = None) -> None:
        """A line for a person."""
        told = printable(text)
        if self.is_terminal:
            self.console.print(told, style=style, soft_wrap=True)
        else:
            print(told, flush=True)

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        cells = [[printable(str(cell)) for cell in row] for row in rows]
        if self.is_terminal:
            self.console.print(as_table(titles, cells))
        else:
            print("\n".join(aligned(titles, cells)), flush=True)

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """A name and a value a line."""
        told = [(name, printable(str(value))) for name, value in pairs]
        width = max((len(name) for name, _ in told), default=0)
        for name, value in told:
            if self.is_terminal:
                self.console.print(f"{name:<{width}}  ", style="bold", end="")
                self.console.print(value, style=COLOURS.get(value), soft_wrap=True)
            else:
                print(f"{name:<{width}}  {value}")
        sys.stdout.flush()


def as_table(titles: Sequence[str], cells: Iterable[Sequence[str]]) -> RenderableType:
    """For a terminal. The cells must be printable."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    return table


def aligned(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """The same without a terminal: columns by spaces, one row a line."""
    rows = [[title.upper() for title in titles], *cells]
    widths = [max(len(row[column]) for row in rows) for column in range(len(titles))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
