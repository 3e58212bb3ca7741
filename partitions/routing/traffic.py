"""Counters of the records and bytes that a broker appends and reads, for metrics.

A request is counted by the broker that the client asks, wherever the leader is, so each byte counts once in a
cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

SPARE: Final = 100  # number of deleted topics whose counters are kept


class Counted:
    """Counters of appended and read bytes of batches, and of appended records."""

    __slots__ = ("bytes_in", "bytes_out", "records_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.records_in = 0
        self.bytes_out = 0


class Traffic:
    """The counters of one broker, and of each topic that it has served.

    ``existing`` gives the topics whose counters are kept; it is called for each new topic only.
    """

    def __init__(self, existing: Callable[[], Collection[str]]) -> None:
        self._existing = existing
        self.all = Counted()
        self.topics: dict[str, Counted] = {}

    def appended(self, topic: str, size_bytes: int, records: int) -> None:
        """Count records that were appended to a topic, and the bytes of their batches."""
        for counted in (self.all, self.topics.get(topic) or self._begun(topic)):
            counted.bytes_in += size_bytes
            counted.records_in += records

    def read(self, topic: str, size_bytes: int) -> None:
        """Count bytes of batches that were read from a topic."""
        if size_bytes:
            for counted in (self.all, self.topics.get(topic) or self._begun(topic)):
                counted.bytes_out += size_bytes

    def _begun(self, topic: str) -> Counted:
        existing = self._existing()
        if len(self.topics) >= len(existing) + SPARE:
            self.topics = {name: each for name, each in self.topics.items() if name in existing}
        counted = self.topics[topic] = Counted()
        return counted
