"""Finds the environment that a command is for, without starting it."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from ..core.error_text import type_and_message
from ..core.state import article
from ..environment import Environment
from ..runtime.quiet import starts_nothing
from .refused import Refused


def load_environment(reference: str) -> Environment:
    """From ``module:attribute``: an Environment, or a function that gives one. Its start() starts nothing here."""
    module, colon, attribute = reference.partition(":")
    if not (module and colon and attribute):
        raise click.UsageError(f"--env must be module:attribute (myapp.tasks:env), not {reference!r}")
    if (folder := os.getcwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)  # as python -m does
    with starts_nothing():
        found = _attribute(_module(module), module, attribute)
        if callable(found) and not isinstance(found, Environment):
            found = _called(found, reference)
    if not isinstance(found, Environment):
        raise Refused(f"{reference} is no Environment but {article(type(found).__name__)}: point --env at one")
    return found


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise Refused(
                f"there is no module {name!r} on the path: run this from the folder that holds it, or install it"
            ) from error
        raise Refused(f"importing {name} failed: {error} (install it, or mend the import)") from error
    except (Exception, SystemExit) as error:
        raise Refused(f"importing {name} failed: {type_and_message(error)} (--debug shows where)") from error


def _attribute(module: Any, name: str, attribute: str) -> Any:
    found = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            names = [key for key, value in vars(module).items() if isinstance(value, Environment)]
            hint = f"it has {', '.join(f'{name}:{key}' for key in names)}" if names else "it has no Environment"
            raise Refused(f"module {name} has no {attribute!r}: {hint}") from error
    return found


def _called(factory: Any, reference: str) -> Any:
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise Refused(f"{reference}() failed: {type_and_message(error)} (--debug shows where)") from error
