"""The program itself: what all commands have in common, and how they end."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..core.error_text import message_of, type_and_message
from ..core.errors import ProcrastinateError
from ..runtime.log_lines import printable
from .output import Output

if TYPE_CHECKING:
    from ..environment import Environment

VARIABLE = "PROCRASTINATE_ENV"
DONE, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130

_COMMANDS = {
    "work": "work",
    "demo": "demo",
    "delay": "delay",
    "list": "looking",
    "show": "looking",
    "stats": "stats",
    "tail": "tail",
    "check": "check",
}
"""Each command and the module that holds it, imported when it's asked for."""


class Session:
    """What the options that all commands have say."""

    def __init__(self, env: str | None, as_json: bool) -> None:
        self.reference = env
        self.output = Output(as_json)
        self._environment: Environment | None = None

    def environment(self) -> Environment:
        from .loading import load_environment

        if self._environment is None:
            if not self.reference:
                raise click.UsageError(f"name your environment: --env module:attribute, or set {VARIABLE}")
            self._environment = load_environment(self.reference)
        return self._environment

    def close(self) -> None:
        """Lets the store go, whatever became of the command."""
        if self._environment is not None:
            self._environment.stop()


class Program(click.Group):
    """Ends with 0: done; 1: refused or failed; 2: usage. Errors are one line on stderr."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(import_module(f".{module}", __package__), f"{cmd_name}_command")
        return command

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        debug = "--debug" in (sys.argv[1:] if args is None else args)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except Exception as error:
            code = _tell(error, debug)
        except KeyboardInterrupt:
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else DONE)


def _tell(error: Exception, debug: bool) -> int:
    if isinstance(error, BrokenPipeError):
        # whoever read the output has left; the interpreter's own flush at the end must not complain either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
    if isinstance(error, click.exceptions.Abort):
        return INTERRUPTED
    if debug:
        traceback.print_exception(error)
    code, told = _in_words(error)
    click.echo(printable(f"procrastinate-py: {told}"), err=True)
    return code


def _in_words(error: Exception) -> tuple[int, str]:
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "procrastinate-py"
        return USAGE, f"{error.format_message()} (see {path} --help)"
    if isinstance(error, click.ClickException):
        return REFUSED, error.format_message()
    if isinstance(error, ProcrastinateError | ValueError | TypeError | OSError):
        return REFUSED, message_of(error)
    return REFUSED, f"{type_and_message(error)} (--debug shows where)"


def _common_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--env"],
            envvar=VARIABLE,
            metavar="MODULE:ATTR",
            help=f"The Environment, or a function that gives one (default: ${VARIABLE}).",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="For programs: JSON, one value a line."),
        click.Option(["--debug"], is_flag=True, expose_value=False, help="Show where an error comes from."),
    ]


def _session(context: click.Context) -> Session:
    """Of the common options as given before the command's name, after it, or both."""
    above = context.parent.obj if context.parent is not None else None
    reference, as_json = context.params.pop("env"), context.params.pop("as_json")
    if isinstance(above, Session):
        given_here = context.get_parameter_source("env") is ParameterSource.COMMANDLINE
        reference = reference if given_here or above.reference is None else above.reference
        as_json = as_json or above.output.as_json
    return Session(reference, as_json)


class Command(click.Command):
    """Takes the common options; its function gets a Session by ``click.pass_obj``."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += _common_options()

    def invoke(self, ctx: click.Context) -> Any:
        session = ctx.obj = _session(ctx)
        try:
            return super().invoke(ctx)
        finally:
            session.close()


@click.group(
    cls=Program,
    invoke_without_command=True,
    params=_common_options(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.pass_context
def program(context: click.Context, env: str | None, as_json: bool) -> None:
    """Work and look at the queues of an Environment.

    Exit codes: 0 done, 1 refused or failed, 2 usage.
    """
    context.obj = Session(env, as_json)
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(USAGE)
