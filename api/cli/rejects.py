"""Counts the lines of an input that are not records, and writes them to a file with line number and reason.

Decides: whether sending continues after such a line. Leaves to others: which lines are not records.
"""

from __future__ import annotations

from io import BufferedIOBase

import msgspec

from raftlog.errors import InvalidRecord, RaftlogError, RecordTooLarge
from raftlog.units import counted

SHOWN_BYTES_MAX = 1 << 20  # shown of a line in the file


class Rejects:
    """The rejected lines of one input. Without a file and without a limit, the first rejected line ends
    sending.
    """

    def __init__(self, file: BufferedIOBase | None = None, limit: int | None = None) -> None:
        self.count = 0
        self._file = file
        self._limit = limit
        self._goes_on = file is not None or limit is not None

    def takes(self, line: int, content: bytes, error: RaftlogError) -> bool:
        """Reject a line; return whether sending continues.

        An error that concerns more than one line ends sending.
        """
        if not self._goes_on or type(error) not in (InvalidRecord, RecordTooLarge):
            return False
        if self._file is not None:
            self._file.write(_entry(line, content, str(error)))
        self.count += 1
        return self._limit is None or self.count <= self._limit

    def summary(self) -> str:
        """Return the number of rejected lines as the last words of a sentence."""
        return f"; {counted(self.count, 'line')} rejected" if self.count else ""


def _entry(line: int, content: bytes, reason: str) -> bytes:
    shown = content[:SHOWN_BYTES_MAX]
    entry: dict[str, object] = {"line": line, "reason": reason}
    try:
        entry |= {"input": shown.decode(), "encoding": "utf8"}
    except UnicodeDecodeError:
        entry |= {"input": shown, "encoding": "base64"}  # JSON encodes bytes in base64
    if len(shown) < len(content):
        entry["is_cut"] = True
    return msgspec.json.encode(entry) + b"\n"
