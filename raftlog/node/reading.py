"""Reads of a log that do not block the event loop.

Decides: what is read on the loop (a few of the newest batches, which the page cache holds) and what on a
thread: all other reads, since they may wait for the disk and their checksums take time. Leaves to others:
what is checked (``storage``), and the consequences of damage (the reader).

A broker without a free file descriptor, memory or thread cannot read for now, but its log is not damaged: the
read raises ``Overloaded``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from raftlog.errors import LogCorrupt
from raftlog.exhaustion import refuse_exhausted
from raftlog.records.compaction import starting_at
from raftlog.storage.log_storage import LogPart, LogRange, LogReader, ReadableLog
from raftlog.types import Index

Result = TypeVar("Result")

READ_THREADS: Final = 4
ON_LOOP_BYTES_MAX: Final = 256 << 10
PIECE_BYTES: Final = 512 << 10  # fits into the processor's cache while it is read, checked and sent
IN_PIECES_BYTES_MIN: Final = 4 << 20  # smaller results are read as a whole, into reused memory
CANNOT_READ: Final = "the log cannot be read"
READ_FAILURES: Final = (LogCorrupt, OSError, MemoryError, RuntimeError)
"""The errors of a read because of a damaged log, a failed disk, or exhaustion."""

_threads = ThreadPoolExecutor(READ_THREADS, "read")  # threads start with their first work


class LogChanged(Exception):
    """Entries were removed from the log while it was read: read the log again."""


class UnreadBatches:
    """The part of a read after its first piece: each further piece is read and checked on demand.

    Appends, new segments and retention do not affect this part, since its files stay open.
    """

    __slots__ = ("_pieces", "left_bytes", "on_failure")

    def __init__(self, found: LogRange) -> None:
        self.left_bytes = found.size_bytes
        self.on_failure: Callable[[Exception], None] = _ignore
        self._pieces = found.pieces(memoryview(bytearray(PIECE_BYTES)))

    def next(self) -> memoryview:
        """Read the next piece, which overwrites the previous piece; for a thread.

        Raises ``READ_FAILURES``.
        """
        piece = next(self._pieces)
        self.left_bytes -= len(piece)
        return piece

    def failed(self, error: Exception) -> None:
        """Report to the replica the error with which a piece could not be read."""
        self.on_failure(error)


def _ignore(error: Exception) -> None:
    pass


class LogBytes(NamedTuple):
    """Checked contiguous batches up to ``last``: first ``data``, then the pieces of ``rest``."""

    last: Index
    data: bytes | memoryview
    rest: UnreadBatches | None = None


def on_thread(work: Callable[[], Result]) -> Awaitable[Result]:
    """Run ``work`` on a thread for reads; return its result, or raise its error."""
    return asyncio.get_running_loop().run_in_executor(_threads, work)


async def read_part(log: ReadableLog, part: LogPart, work: Callable[[LogReader], Result]) -> Result:
    """Run ``work`` on a thread with a copy of a part of the log.

    Raises ``LogChanged`` if entries were removed from the log meanwhile, and ``Overloaded``; ``LogCorrupt``
    and ``OSError`` if the log is damaged.
    """
    removals = log.removals
    try:
        result = await on_thread(lambda: work(part))
    except READ_FAILURES as error:
        refuse_exhausted(error, CANNOT_READ)
        if log.removals != removals or log.is_changing:
            raise LogChanged from error
        raise
    part.finished()
    return result


def read_recent(log: ReadableLog, first: Index, last: Index, *, bytes_max: int) -> LogBytes | None:
    """Read a few of the newest batches at once; None if that is not possible without blocking.

    Raises ``Overloaded``, ``LogCorrupt`` and ``OSError``.
    """
    try:
        found = log.recent(first, last, bytes_max=bytes_max)
        if found is None or found.size_bytes > ON_LOOP_BYTES_MAX:
            return None
        return _bytes_of(found, first)
    except READ_FAILURES as error:
        refuse_exhausted(error, CANNOT_READ)
        raise


async def read_batches(
    log: ReadableLog, first: Index, last: Index, *, bytes_max: int, in_pieces: bool = False
) -> LogBytes:
    """Read batches; a gap batch at their beginning is cut to start at ``first``.

    With ``in_pieces``, a large result is returned as its first piece and an ``UnreadBatches``.
    Raises ``OffsetOutOfRange`` if ``first..last`` is not in the log, and the errors of ``read_part``.
    """
    found = read_recent(log, first, last, bytes_max=bytes_max)
    if found is None:
        part = log.part(first, bytes_max)

        def read(part: LogReader) -> LogBytes:
            found = part.read(first, last, bytes_max=bytes_max)
            begins = in_pieces and found.size_bytes >= IN_PIECES_BYTES_MIN and found.last <= last
            return _beginning_of(found, first) if begins else _bytes_of(found, first)

        found = await read_part(log, part, read)
    return found


def _bytes_of(found: LogRange, first: Index) -> LogBytes:
    return LogBytes(found.last, starting_at(found.read(), first))


def _beginning_of(found: LogRange, first: Index) -> LogBytes:
    rest = UnreadBatches(found)
    data = starting_at(rest.next(), first)
    return LogBytes(found.last, data, rest if rest.left_bytes else None)
