"""Replaces standard streams that are closed (as by ``raftlog consume orders >&-``), and escapes characters
that the output cannot encode.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Final

CLOSED: Final = "standard output is closed; redirect it to a file or to /dev/null"


def replace_closed_streams() -> None:
    """Occupy the descriptors of closed standard streams; otherwise the next files and sockets would get these
    descriptors.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = ClosedOutput()


def escape_unknown_characters() -> None:
    """Escape characters that the encoding of standard output or standard error lacks, for example as
    ``\\u65e5``.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class OutputClosed(OSError):
    """The standard output of a command is closed, but the command wrote to it."""


class ClosedOutput:
    """Standard output of a process that was started without one: each write raises ``OutputClosed``."""

    @property
    def buffer(self) -> ClosedOutput:
        """The binary stream of this output, which is closed, too."""
        return self

    def write(self, _: object) -> int:
        """Raise ``OutputClosed``."""
        raise OutputClosed(CLOSED)

    def writelines(self, _: object) -> None:
        """Raise ``OutputClosed``."""
        raise OutputClosed(CLOSED)

    def flush(self) -> None:
        """Do nothing: no output is buffered."""

    def fileno(self) -> int:
        """Raise ``OutputClosed``."""
        raise OutputClosed(CLOSED)

    def isatty(self) -> bool:
        """Return False: there is no terminal."""
        return False
