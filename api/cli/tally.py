"""Counts the outcomes of sent records, measures their times, and summarises them in one line.

Decides: the summary and its exit code. Leaves to others: sending.
"""

from __future__ import annotations

import math
import signal
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import NamedTuple

from api.cli.output import REFUSED, UNKNOWN, UNREACHABLE, exit_code
from api.cli.rejects import Rejects
from raftlog.client.receipts import BlockingPendingReceipt, OnAck, Receipt
from raftlog.errors import RaftlogError
from raftlog.units import counted

_STEPS_PER_S = 10_000  # times are rounded to a tenth of a millisecond, to save memory
_GRAVEST_FIRST = (UNKNOWN, UNREACHABLE, REFUSED)
_SAID = {UNKNOWN: "of unknown outcome", UNREACHABLE: "not sent", REFUSED: "refused"}
_ALL_TIMED = 1_000
_TIMED_OF_MANY = 16


Pending = list[BlockingPendingReceipt | None]
"""The pending receipts of consecutive lines; ``None`` for a line that is not a record."""


class _Block(NamedTuple):
    first_line: int
    lines: Sequence[bytes]
    pending: Pending  # grows while the block is sent


class Tally:
    """Counts the outcomes of records, a block of lines at a time.

    A callback for each record would double the cost of sending. So a block keeps its pending receipts until
    all are done, and only a sample of the records is timed. Ctrl-C, which may come between any two steps,
    loses no counts. Used on the main thread only.
    """

    def __init__(self, rejects: Rejects | None = None) -> None:
        self._rejects = rejects or Rejects()
        self.stored = 0
        self.stored_bytes = 0
        self._open: deque[_Block] = deque()
        self._failed: Counter[int] = Counter()  # number of failures by exit code
        self._first: dict[
            int, tuple[int, RaftlogError]
        ] = {}  # by exit code: the lowest line that failed, and its error
        self._of_batches: set[RaftlogError] = set()  # errors that are the outcome of several records
        self._started_at = time.monotonic()
        self._steps: Counter[int] = Counter()

    def timer(self, line: int) -> OnAck | None:
        """Return the callback that times the acknowledgement of a record; None if the record is not timed."""
        if line > _ALL_TIMED and line % _TIMED_OF_MANY:
            return None
        return partial(self._acknowledged, time.monotonic())

    def block(self, first_line: int, lines: Sequence[bytes]) -> Pending:
        """Create the list to which the sender adds one receipt for each of these lines."""
        pending: Pending = []
        self._open.append(_Block(first_line, lines, pending))
        return pending

    def count(self) -> None:
        """Count the outcomes of the oldest blocks, up to the first block with a pending record. Ctrl-C is
        raised afterwards.
        """
        with _interrupts_held():
            while self._open and all(one is None or one.done() for one in self._open[0].pending):
                self._settle(self._open.popleft())

    def wait(self) -> None:
        """Wait until each record has an outcome."""
        for block in self._open:
            for pending in block.pending:
                if pending is not None:
                    pending.exception()

    def refuse(self, line: int, error: RaftlogError) -> None:
        """Count one line that could not be sent, with its error."""
        code = exit_code(error, changing=True)
        self._failed[code] += 1
        if code not in self._first or line < self._first[code][0]:
            self._first[code] = line, error

    @property
    def has_failed(self) -> bool:
        """Return whether any record failed or has an unknown outcome."""
        return bool(self._failed)

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0 if all records are stored, else the code of the most serious
        failure.
        """
        return next((code for code in _GRAVEST_FIRST if code in self._failed), 0)

    def summary(self, *, acknowledged: bool) -> str:
        """Return one line about the stored records: their number, the throughput and the acknowledgement
        latency.
        """
        took_s = max(time.monotonic() - self._started_at, 1e-6)
        text = (
            f"{counted(self.stored, 'record')}, "
            f"{self.stored_bytes / 1e6:.1f} MB in {took_s:.2f} s: "
            f"{self.stored / took_s:.0f} records/s, {self.stored_bytes / 1e6 / took_s:.1f} MB/s"
        )
        if acknowledged and self._steps:
            middle, high = (1000 * percentile(self._steps, part) / _STEPS_PER_S for part in (0.5, 0.99))
            text += f"; acknowledged in p50 {middle:.1f} ms, p99 {high:.1f} ms"
        return text

    def totals(self) -> dict[str, object]:
        """Return the numbers of the summary: stored records and bytes, failed records, and seconds since the
        start.
        """
        return {
            "stored": self.stored,
            "stored_bytes": self.stored_bytes,
            "failed": self._failed.total(),
            "seconds": round(time.monotonic() - self._started_at, 3),
        }

    def complaints(self) -> list[str]:
        """Return one line for each kind of failure, with the first error of this kind."""
        lines = []
        for code in _GRAVEST_FIRST:
            if code in self._failed:
                line, error = self._first[code]
                lines.append(
                    f"error ({error.code}): records {_SAID[code]}: {self._failed[code]}; "
                    f"the first of them, line {line}: {error}"
                )
        return lines

    def _settle(self, block: _Block) -> None:
        failed = []
        for line, (content, pending) in enumerate(
            zip(block.lines, block.pending, strict=False), block.first_line
        ):
            error = None if pending is None else pending.exception()
            if error is not None:
                failed.append((line, content, error))
            elif pending is not None:
                self.stored += 1
                self.stored_bytes += len(content)
        if failed:
            self._end(block, failed)

    def _end(self, block: _Block, failed: Sequence[tuple[int, bytes, RaftlogError]]) -> None:
        """Reject the records that a broker refused alone. If it refused a batch, the invalid record is
        unknown, so the batch's lines count as failed.
        """
        pending = chain(
            block.pending, *(each.pending for each in self._open)
        )  # a batch may span several blocks
        outcomes = Counter(one.exception() for one in pending if one is not None and one.done())
        self._of_batches |= {error for error, count in outcomes.items() if error is not None and count > 1}
        for line, content, error in failed:
            if error in self._of_batches or not self._rejects.takes(line, content, error):
                self.refuse(line, error)

    def _acknowledged(self, sent_at: float, receipt: Receipt | None, error: RaftlogError | None) -> None:
        """Count the latency of an acknowledgement; called on the client's thread."""
        if error is None:
            self._steps[int((time.monotonic() - sent_at) * _STEPS_PER_S)] += 1


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay a Ctrl-C that comes during the block until the block ends."""
    held = []
    handler = signal.signal(signal.SIGINT, lambda *_: held.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if held:
        raise KeyboardInterrupt


def percentile(counts: Mapping[int, int], part: float) -> int:
    """Return the least number that at least ``part`` of all counted numbers do not exceed. There must be a
    number.
    """
    wanted = math.ceil(sum(counts.values()) * part)
    for number in sorted(counts):
        wanted -= counts[number]
        if wanted <= 0:
            return number
    raise ValueError("there are no numbers")
