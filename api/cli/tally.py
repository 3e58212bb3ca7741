"""What became of the records that a command sent: counted, timed and told in one line.

Decides: what the summary says and which exit code it has. Leaves to others: sending.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping

from api.cli.output import NOBODY_REACHED, REFUSED, UNKNOWN, exit_code
from raftlog.client.receipts import Receipt
from raftlog.errors import RaftlogError

_STEPS_PER_S = 10_000  # times are kept to a tenth of a millisecond, so that memory stays small
_GRAVEST_FIRST = (UNKNOWN, NOBODY_REACHED, REFUSED)
_SAID = {UNKNOWN: "that may be stored or not", NOBODY_REACHED: "not sent", REFUSED: "refused"}


class Tally:
    """Counts outcomes. ``settle`` runs on the client's thread, everything else on the command's."""

    def __init__(self) -> None:
        self.stored = 0
        self.stored_bytes = 0
        self._failed: Counter[int] = Counter()  # by exit code
        self._first: dict[int, tuple[int, RaftlogError]] = {}  # likewise: the lowest line and its error
        self._started_at = time.monotonic()
        self._steps: Counter[int] = Counter()

    def settle(
        self, line: int, size_bytes: int, sent_at: float, receipt: Receipt | None, error: RaftlogError | None
    ) -> None:
        """One record has its outcome."""
        if error is None:
            self.stored += 1
            self.stored_bytes += size_bytes
            self._steps[int((time.monotonic() - sent_at) * _STEPS_PER_S)] += 1
        else:
            code = exit_code(error, changing=True)
            self._failed[code] += 1
            if code not in self._first or line < self._first[code][0]:
                self._first[code] = line, error

    @property
    def has_failed(self) -> bool:
        """Whether some record is not known to be stored."""
        return bool(self._failed)

    @property
    def exit_code(self) -> int:
        """0 when every record is stored; else that of the gravest failure."""
        return next((code for code in _GRAVEST_FIRST if code in self._failed), 0)

    def summary(self, *, acknowledged: bool) -> str:
        """One line: how many, how fast and, if they were acknowledged, how soon."""
        took_s = max(time.monotonic() - self._started_at, 1e-6)
        text = (
            f"{self.stored} records, {self.stored_bytes / 1e6:.1f} MB in {took_s:.2f} s: "
            f"{self.stored / took_s:.0f} records/s, {self.stored_bytes / 1e6 / took_s:.1f} MB/s"
        )
        if acknowledged and self.stored:
            middle, high = (1000 * percentile(self._steps, part) / _STEPS_PER_S for part in (0.5, 0.99))
            text += f"; acknowledged in p50 {middle:.1f} ms, p99 {high:.1f} ms"
        return text

    def complaints(self) -> list[str]:
        """One line for each kind of failure, with its first error."""
        lines = []
        for code in _GRAVEST_FIRST:
            if code in self._failed:
                line, error = self._first[code]
                lines.append(
                    f"error ({error.code}): records {_SAID[code]}: {self._failed[code]}; "
                    f"the first of them, line {line}: {error}"
                )
        return lines


def percentile(counts: Mapping[int, int], part: float) -> int:
    """The smallest number that ``part`` of all are not above. There must be one at least."""
    wanted = math.ceil(sum(counts.values()) * part)
    for number in sorted(counts):
        wanted -= counts[number]
        if wanted <= 0:
            return number
    raise ValueError("there are no numbers")
