"""Defines the anomalies that checkers report, and the verdict that follows from them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from chaos.registers import Verdict


class Severity(enum.Enum):
    """Severity of an anomaly. ``NORMAL``: logs of this kind permit it. ``UNDECIDED``: the search for an order
    was given up.
    """

    BAD = "bad"
    NORMAL = "normal"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A deviation of a history from a perfect log. Only anomalies that are bad violate the guarantees."""

    kind: str
    partition: int  # -1 for several partitions
    detail: str
    severity: Severity = Severity.BAD

    @property
    def is_bad(self) -> bool:
        """True if the anomaly makes the history invalid."""
        return self.severity is Severity.BAD


_LOST: Final = frozenset({"lost-write", "unseen", "read-and-lost"})


def verdict(anomalies: Iterable[Anomaly]) -> Verdict:
    """Return invalid if an anomaly is bad; otherwise unknown if an anomaly is undecided, else valid."""
    severities = {anomaly.severity for anomaly in anomalies}
    if Severity.BAD in severities:
        return Verdict.INVALID
    return Verdict.UNKNOWN if Severity.UNDECIDED in severities else Verdict.VALID


def count_lost(anomalies: Iterable[Anomaly]) -> int:
    """Count the lost values. A value is counted once, even if it has several anomalies."""
    return len({(one.partition, one.detail) for one in anomalies if one.is_bad and one.kind in _LOST})


def severity(is_bad: bool) -> Severity:
    """Return the severity bad if ``is_bad``, otherwise normal."""
    return Severity.BAD if is_bad else Severity.NORMAL
