"""Encodes the account of one transaction of an import: the position in Kafka, and the new offsets of the
copied records.

Decides: the JSON of an account, and the translation of an offset. Leaves to others: reading and writing
accounts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from raftlog.errors import Conflict

SUFFIX = ".kafka-import"


class Run(NamedTuple):
    """Records that are consecutive in both logs: their first offset in each log, and their number."""

    source: int
    target: int
    records: int

    @property
    def target_end(self) -> int:
        """The offset after the run's last record in the target topic."""
        return self.target + self.records

    def is_followed_by(self, source: int, target: int) -> bool:
        """Return whether a record with these offsets is the next record of the run."""
        return source == self.source + self.records and target == self.target_end


class Account(msgspec.Struct, frozen=True):
    """The account of one transaction of an import. ``following`` has the next offset of each partition in
    Kafka.
    """

    cluster: str  # id of the Kafka cluster
    topic: str  # name of the topic in Kafka
    topic_id: str  # id of the target topic
    following: dict[int, int]
    runs: dict[int, list[Run]] = {}

    def check(self, wanted: Account) -> None:
        """Raise ``Conflict`` if the continued import has another source, or if the target topic was deleted
        and created again.
        """
        if (self.cluster, self.topic) != (wanted.cluster, wanted.topic):
            raise Conflict(
                f"the topic has records of Kafka's topic {self.topic} of cluster {self.cluster}, but this "
                f"import is of {wanted.topic} of cluster {wanted.cluster}; choose another topic with --into"
            )
        if self.topic_id != wanted.topic_id:
            raise Conflict(
                "the topic was deleted and created again since the previous import; to start from the "
                f"beginning, also delete the topic whose name ends with {SUFFIX}"
            )


def runs_of(pairs: Iterable[tuple[int, int]]) -> list[Run]:
    """Join pairs of source and target offsets, which are in order, to runs."""
    found: list[Run] = []
    for source, target in pairs:
        if found and found[-1].is_followed_by(source, target):
            found[-1] = found[-1]._replace(records=found[-1].records + 1)
        else:
            found.append(Run(source, target, 1))
    return found


class Copied:
    """The copied records by partition, according to all accounts of an import."""

    def __init__(self, accounts: Iterable[Account]) -> None:
        self.runs: defaultdict[int, list[Run]] = defaultdict(list)
        self.following: Mapping[int, int] = {}
        for account in accounts:
            self.following = account.following
            for partition, runs in account.runs.items():
                self.runs[partition] += runs

    def count(self, partition: int) -> int:
        """Return the number of records in a partition of the target topic that come from Kafka."""
        return sum(run.records for run in self.runs[partition])

    def has(self, partition: int, target: int) -> bool:
        """Return whether the record at this offset of the target topic comes from Kafka."""
        runs = self.runs[partition]
        at = bisect_right(runs, target, key=_target) - 1
        return at >= 0 and target < runs[at].target_end

    def translated(self, partition: int, committed: int) -> int | None:
        """Return the target offset of the first copied record at or after ``committed``; the end of the
        copied records if there is none.

        Returns ``None`` if no record of the partition is copied.
        """
        runs = self.runs[partition]
        if not runs:
            return None
        at = max(bisect_right(runs, committed, key=_source) - 1, 0)
        within = max(committed - runs[at].source, 0)
        if within < runs[at].records:
            return runs[at].target + within
        return runs[at + 1].target if at + 1 < len(runs) else runs[at].target_end


def _target(run: Run) -> int:
    return run.target


def _source(run: Run) -> int:
    return run.source
