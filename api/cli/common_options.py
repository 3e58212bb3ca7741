"""Adds the common options to commands.

Decides: which commands have which common option. All commands have ``--output`` and ``--color``, commands
about a cluster ``--context``, and commands that list, describe or check ``--watch``. The values are stored in
the context of the command, where output and addresses are chosen; commands do not declare these options.

``--watch`` repeats a command. A terminal is cleared before each result; a pipe gets one result after the
other. The next round begins after a pause that follows the previous round, so that slow brokers do not get
more requests. If no broker can be reached, the error is shown, and the next round tries again.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from enum import StrEnum
from functools import wraps
from typing import Final

import click
from click.core import ParameterSource

from api.cli.contexts import address_of_context
from api.cli.output import (
    COLOUR_KEY,
    FORMAT_KEY,
    UNREACHABLE,
    Colour,
    Format,
    options_checked,
    reader_has_closed,
)
from api.cli.parameters import Choice, FiniteNumber, names_of

WATCHED: Final = frozenset({"list", "describe", "health"})
"""The last words in the names of commands that can be repeated with ``--watch``."""
_SIGNALLED: Final = 128  # plus the number of the signal
_CLEAR: Final = "\x1b[H\x1b[2J"  # earlier output stays in the scrollback


def with_common_options(full_name: str, command: click.Command) -> click.Command:
    """Return the command after the common options were added to it."""
    server = next((each for each in command.params if each.name == "server"), None)
    if server is not None and server.default is not None:
        server.callback = _chosen_address
        command.params += [_context_option()]
        if full_name.split()[-1] in WATCHED and command.callback is not None:
            command.params += [_watch_option()]
            command.callback = _repeated(command.callback)
    command.params += [
        _choice_option(
            ["--output", "-o"],
            Format.TABLE,
            FORMAT_KEY,
            "How to print the result; wide is a table with all columns.",
        ),
        _choice_option(
            ["--color"], Colour.AUTO, COLOUR_KEY, "Problems in colour; auto on terminals without NO_COLOR."
        ),
    ]
    return command


def _choice_option(names: list[str], default: StrEnum, key: str, text: str) -> click.Option:
    """Create the option that chooses a member of the enumeration of ``default``."""
    return click.Option(
        names,
        type=Choice(list(type(default))),
        default=str(default),
        show_default=True,
        help=text,
        expose_value=False,
        callback=_kept(key),
    )


def _context_option() -> click.Option:
    return click.Option(
        ["--context"],
        metavar="NAME",
        is_eager=True,  # the address is chosen after this option is read
        envvar="RAFTLOG_CONTEXT",
        show_envvar=True,
        help="A context of `raftlog context list`; used if no address is given.",
        expose_value=False,
        callback=_kept("raftlog.context"),
        shell_complete=names_of("contexts"),
    )


def _watch_option() -> click.Option:
    return click.Option(
        ["--watch", "-w", "watch_s"],
        metavar="[SECONDS]",
        is_flag=False,
        flag_value="2",
        type=FiniteNumber(min=0.1, max=86_400),
        help="Show the result repeatedly until Ctrl-C.  [2 seconds]",
    )


def _chosen_address(context: click.Context, server: click.Parameter, url: str) -> str:
    """Return the address of the cluster. Sources: an option, the environment, a context, or this machine."""
    is_given, is_set = (
        context.get_parameter_source("server") is source
        for source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    )
    is_named = context.get_parameter_source("context") is ParameterSource.COMMANDLINE
    if is_given or (is_set and not is_named):
        return url
    with options_checked():
        return address_of_context(context.meta.get("raftlog.context")) or url


def _kept(key: str) -> Callable[[click.Context, click.Parameter, object], None]:
    """Create the callback that stores the value of an option in the context of the command."""

    def keep(context: click.Context, _: click.Parameter, value: object) -> None:
        context.meta[key] = value

    return keep


def _repeated(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command with an argument ``watch_s``: the pause between rounds in seconds, or ``None`` for one
    round.
    """

    @wraps(command)
    def run(*, watch_s: float | None, **options: object) -> None:
        if watch_s is None:
            command(**options)
        else:
            _watch(lambda: command(**options), watch_s)

    return run


def _watch(show_once: Callable[[], None], pause_s: float) -> None:
    is_first = True
    try:
        while True:
            code = _round(show_once)
            if code > _SIGNALLED:
                return
            if code not in (0, 1) and (is_first or code != UNREACHABLE):
                raise click.exceptions.Exit(code)
            is_first = False
            time.sleep(pause_s)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        reader_has_closed()


class _Picture(io.StringIO):
    """Collected output of one round, with colours if a terminal will show it."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """Return whether a terminal will show the output."""
        return self._is_terminal


def _round(show_once: Callable[[], None]) -> int:
    """Run one round: run the command, write its result in one piece, and return its exit code."""
    is_terminal = sys.stdout.isatty()
    collected, code = _Picture(is_terminal=is_terminal), 0
    with ExitStack() as redirected:
        redirected.enter_context(redirect_stdout(collected))
        if is_terminal:  # problems are part of the result on a terminal
            redirected.enter_context(redirect_stderr(collected))
        try:
            show_once()
        except click.exceptions.Exit as ended:
            code = ended.exit_code
    if code <= _SIGNALLED:
        sys.stdout.write((_CLEAR if is_terminal else "") + collected.getvalue())
        sys.stdout.flush()
    return code
