"""Observes a group continuously, through any broker, and records what the brokers show of it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from chaos.consumer_groups.history import Owned, Recorder, SeenGeneration, SeenOffset
from chaos.http_get import http_get
from raftlog.wire import groups
from raftlog.wire.decoding import decoder_of

PAUSE_S: Final = 0.1
TIMEOUT_S: Final = 10

Body = TypeVar("Body")


class Observer:
    """Records generations, owners and committed offsets of one group."""

    def __init__(self, urls: Sequence[str], group: str, recorder: Recorder, rng: random.Random) -> None:
        self._urls = list(urls)
        self._group = group
        self._recorder = recorder
        self._rng = rng

    def run(self, stopping: threading.Event) -> None:
        """Observe the group until ``stopping`` is set. A broker that does not respond is skipped."""
        while not stopping.wait(PAUSE_S):
            url = self._rng.choice(self._urls)
            try:
                self._look_at_group(url)
                self._look_at_offsets(url)
            except OSError:
                continue

    def committed(self) -> dict[int, int]:
        """Return the committed offset of each partition, from the first broker that responds; empty if no
        broker responds.
        """
        for url in self._urls:
            try:
                return {row.partition: row.committed_offset for row in self._offsets(url)}
            except OSError:
                continue
        return {}

    def _look_at_group(self, url: str) -> None:
        invoked_s = time.monotonic()
        found = _get(url + groups.DESCRIBE.path.format(group=self._group), groups.GroupDescription)
        completed_s = time.monotonic()
        generation = found.generation
        self._recorder.add(
            SeenGeneration(generation=generation, invoked_s=invoked_s, completed_s=completed_s)
        )
        for member in found.members:
            self._recorder.add(
                Owned(
                    member=member.member_id,
                    generation=generation,
                    partitions=tuple(number for each in member.assignment for number in each.partitions),
                    invoked_s=invoked_s,
                    completed_s=completed_s,
                )
            )

    def _look_at_offsets(self, url: str) -> None:
        invoked_s = time.monotonic()
        for row in self._offsets(url):
            self._recorder.add(
                SeenOffset(
                    partition=row.partition,
                    offset=row.committed_offset,
                    generation=row.generation,
                    invoked_s=invoked_s,
                    completed_s=time.monotonic(),
                )
            )

    def _offsets(self, url: str) -> list[groups.GroupOffset]:
        path = groups.OFFSETS.path.format(group=self._group)
        return _get(f"{url}{path}?lag=false", groups.GroupOffsetList).items


def _get(url: str, body: type[Body]) -> Body:
    return decoder_of(body).decode(http_get(url, TIMEOUT_S)[0])
