"""The anomalies that the checkers report, and the verdict that follows."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from chaos.registers import Verdict


class Severity(enum.Enum):
    """``NORMAL``: logs of this kind permit it. ``UNDECIDED``: a search was given up."""

    BAD = "bad"
    NORMAL = "normal"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something in a history that a perfect log does not show. Only bad ones violate the guarantees."""

    kind: str
    partition: int  # -1: of several
    detail: str
    severity: Severity = Severity.BAD

    @property
    def is_bad(self) -> bool:
        """True if it makes the history invalid."""
        return self.severity is Severity.BAD


_LOST: Final = frozenset({"lost-write", "unseen", "read-and-lost"})


def verdict(anomalies: Iterable[Anomaly]) -> Verdict:
    """Invalid with a bad anomaly; otherwise unknown if anything is undecided."""
    severities = {anomaly.severity for anomaly in anomalies}
    if Severity.BAD in severities:
        return Verdict.INVALID
    return Verdict.UNKNOWN if Severity.UNDECIDED in severities else Verdict.VALID


def count_lost(anomalies: Iterable[Anomaly]) -> int:
    """The number of values that are lost; one value may have several anomalies."""
    return len({(one.partition, one.detail) for one in anomalies if one.is_bad and one.kind in _LOST})


def severity(is_bad: bool) -> Severity:
    """Bad or normal."""
    return Severity.BAD if is_bad else Severity.NORMAL
