"""``--watch``: a command's result again and again.

A terminal is cleared before each result; a pipe gets one result after the other. One round runs at a time,
and the next one begins after a pause, so that slow brokers are not asked more often. A broker that cannot be
reached is shown and asked again.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from functools import wraps
from typing import Final

import click

_SIGNALLED: Final = 128  # and the number of the signal
_CLEAR: Final = "\x1b[H\x1b[2J"  # what was there before stays in the scrollback


def repeated(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an argument ``watch_s``: the pause between rounds, or ``None`` for one round."""

    @wraps(command)
    def run(*, watch_s: float | None, **options: object) -> None:
        if watch_s is None:
            command(**options)
        else:
            _watch(lambda: command(**options), watch_s)

    return run


def _watch(show_once: Callable[[], None], pause_s: float) -> None:
    from api.cli.output import UNREACHABLE, reader_has_closed

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
    """Collected output, which is in colour if it goes to a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """Whether a terminal will show it."""
        return self._is_terminal


def _round(show_once: Callable[[], None]) -> int:
    """Write a result at once, and return the exit code that the command would have."""
    is_terminal = sys.stdout.isatty()
    collected, code = _Picture(is_terminal=is_terminal), 0
    with ExitStack() as redirected:
        redirected.enter_context(redirect_stdout(collected))
        if is_terminal:  # problems belong to the picture
            redirected.enter_context(redirect_stderr(collected))
        try:
            show_once()
        except click.exceptions.Exit as ended:
            code = ended.exit_code
    if code <= _SIGNALLED:
        sys.stdout.write((_CLEAR if is_terminal else "") + collected.getvalue())
        sys.stdout.flush()
    return code
