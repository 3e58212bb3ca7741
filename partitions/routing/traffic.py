"""Counters of what a broker appends to partitions and reads from them, for metrics. Nothing is decided here.

They are of the broker that is asked, wherever the leader is, so that each byte counts once in a cluster.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

SPARE: Final = 100  # deleted topics whose counters are kept


class Counted:
    """Bytes of batches, and records."""

    __slots__ = ("bytes_in", "bytes_out", "records_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.records_in = 0
        self.bytes_out = 0


class Traffic:
    """The counters of one broker, and of each topic that it has served."""

    def __init__(self) -> None:
        self.all = Counted()
        self.topics: dict[str, Counted] = {}

    def appended(self, topic: str, size_bytes: int, records: int, existing: Collection[str]) -> None:
        """Records were appended. ``existing`` are the topics whose counters are kept."""
        for counted in (self.all, self._of(topic, existing)):
            counted.bytes_in += size_bytes
            counted.records_in += records

    def read(self, topic: str, size_bytes: int, existing: Collection[str]) -> None:
        """Records were read."""
        if size_bytes:
            for counted in (self.all, self._of(topic, existing)):
                counted.bytes_out += size_bytes

    def _of(self, topic: str, existing: Collection[str]) -> Counted:
        counted = self.topics.get(topic)
        if counted is None:
            if len(self.topics) >= len(existing) + SPARE:
                self.topics = {name: each for name, each in self.topics.items() if name in existing}
            counted = self.topics[topic] = Counted()
        return counted
