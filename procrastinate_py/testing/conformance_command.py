"""The exam from the command line: ``python -m procrastinate_py.testing.conformance URL-or-MODULE:CALLABLE``."""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import ConfigurationError, PersisterError
from ..persisters import open_persister
from .clock import FakeClock
from .conformance_report import Report


class NotEmptyError(Exception):
    """The store holds tasks already: an exam deletes all that it finds."""


def main(arguments: Sequence[str], grade: Callable[..., Report]) -> int:
    """Prints the report. 0: passed, 1: failed, 2: nothing was examined."""
    parser = argparse.ArgumentParser(
        prog="python -m procrastinate_py.testing.conformance",
        description="Examines a persister and prints a graded report. Exits with 1 where a case failed.",
    )
    parser.add_argument(
        "target",
        help="a bundled store's URL, whose store must be empty and is emptied after each case; or module:callable, "
        "which is called with a clock for each case and gives a persister with an empty store",
    )
    parser.add_argument(
        "--scale", type=_part, default=1.0, help="what part of the tasks large cases have, for slow stores (default 1)"
    )
    options = parser.parse_args(arguments)
    try:
        make_persister, reopen, clean_up = _makers(options.target)
    except (ConfigurationError, PersisterError, NotEmptyError, ImportError, AttributeError) as error:
        sys.stderr.write(f"nothing was examined: {error}\n")
        return 2
    try:
        report = grade(make_persister, reopen=reopen, scale=options.scale)
    finally:
        clean_up()
    sys.stdout.write(f"{report}\n")
    return 0 if report.passed else 1


def _part(text: str) -> float:
    part = float(text)
    if not 0 < part < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return part


def _makers(target: str) -> tuple[Callable[[FakeClock], Any], Callable[[Any], Any] | None, Callable[[], None]]:
    """Makes a persister, opens a store anew where it outlives one, and empties it at last."""
    if "://" in target:
        store = _StoreOfUrl(target)
        return store.make, store.reopen if store.is_lasting else None, store.empty
    name, separator, attribute = target.partition(":")
    if not separator:
        raise ConfigurationError("the target must be a persister's URL, or module:callable")
    sys.path.insert(0, os.getcwd())
    made = importlib.import_module(name)
    for part in attribute.split("."):
        made = getattr(made, part)
    if not callable(made):
        raise ConfigurationError(f"{target} isn't callable: it must give a persister, called with a clock")
    return made, None, lambda: None


class _StoreOfUrl:
    """Nobody else may use it meanwhile: it was empty, so all that is found in it later is the exam's own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._clock = FakeClock()
        persister = open_persister(url, clock=self._clock)
        try:
            if persister.select(limit=1):
                raise NotEmptyError(
                    "the store isn't empty, and an exam deletes all that it finds: give it a database, prefix or file "
                    "of its own"
                )
            self.is_lasting = bool(persister.is_shareable)
        finally:
            persister.close()

    def make(self, clock: FakeClock) -> Any:
        self._clock = clock
        persister = open_persister(self._url, clock=clock)
        while page := persister.select(limit=500):
            for record in page:
                persister.delete_task(record.id)
        return persister

    def empty(self) -> None:
        self.make(self._clock).close()

    def reopen(self, persister: Any) -> Any:
        persister.close()
        return open_persister(self._url, clock=self._clock)
