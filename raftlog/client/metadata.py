"""Caches the partitions of topics and their leaders.

Decides: when an entry is too old. Leaves to others: what to do while a partition has no leader.

All callers that wait for a topic share one request. Entries may be stale, which is harmless: requests say
``route=none``, so a broker that does not lead the partition returns ``not_leader`` with the leader's address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raftlog.client.listing import ATTEMPT_TIMEOUT_S, TIMEOUT_S, partitions_of
from raftlog.errors import (
    Draining,
    NoLeader,
    NotLeader,
    NotSent,
    PartitionDecommissioned,
    PartitionNotFound,
    RaftlogError,
    Unknown,
)
from raftlog.wire import bodies, brokers

if TYPE_CHECKING:
    from raftlog.client.session import Session

AGE_MAX_S = 60.0
UNKNOWN_TERM = -1
# After these errors the leader may have changed; after others (too busy, too large) it has not.
_DOUBTFUL = (NotLeader, NoLeader, NotSent, Unknown, Draining, PartitionNotFound, PartitionDecommissioned)


@dataclass(slots=True)
class TopicView:
    """A topic as brokers last described it.

    ``leaders`` are addresses by partition, ``None`` during an election. ``terms`` are the terms of the
    leaders, or ``UNKNOWN_TERM`` if only the address is known.
    """

    name: str
    leaders: list[str | None]
    terms: list[int]
    seen_at: float
    version: int
    replicas: list[dict[str, list[str]]]  # by partition: addresses of in-sync replicas, by rack
    is_suspect: bool = field(default=False)
    decommissioned: int = field(default=0)  # number of last partitions that take no records

    @property
    def partition_count(self) -> int:
        """The number of partitions."""
        return len(self.leaders)

    @property
    def writable_count(self) -> int:
        """The number of partitions that take records."""
        return len(self.leaders) - self.decommissioned


class Metadata:
    """The cache of all topics that this client uses."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._topics: dict[str, TopicView] = {}
        self._refreshes: dict[str, asyncio.Task[TopicView]] = {}

    def cached(self, topic: str) -> TopicView | None:
        """The cached entry of a topic; None without an entry. Sends no request."""
        return self._topics.get(topic)

    async def topic(self, name: str) -> TopicView:
        """The entry of a topic, fetched if it is not cached. Raises ``TopicNotFound``.

        A stale entry is returned at once and refreshed in the background.
        """
        view = self._topics.get(name)
        if view is None or view.is_suspect:
            return await self.refresh(name)
        age_s = self._session.clock.monotonic() - view.seen_at
        if age_s > AGE_MAX_S or (view.version < self._session.metadata_version and age_s > 1.0):
            self._refresh_task(name)
        return view

    async def refresh(self, name: str) -> TopicView:
        """Fetch a topic again; concurrent callers share the result."""
        return await asyncio.shield(self._refresh_task(name))

    async def leader_of(self, topic: str, partition: int) -> str:
        """The address of a partition's leader.

        Raises ``NoLeader``, which is definite: no request was sent.
        """
        view = await self.topic(topic)
        if partition >= view.partition_count:
            view = await self.refresh(topic)
            if partition >= view.partition_count:
                raise PartitionNotFound(
                    f"{topic} has the partitions 0 to {view.partition_count - 1}, not {partition}",
                    topic=topic,
                    partition=partition,
                )
        leader = view.leaders[partition]
        if leader is None:
            raise NoLeader(f"{topic}/{partition} is electing a leader", topic=topic, partition=partition)
        return leader

    def correct(self, topic: str, partition: int, error: RaftlogError) -> None:
        """Update the cache after an error: set the leader that the error names, or mark the entry stale."""
        view = self._topics.get(topic)
        if view is None:
            return
        address = error.details.get("leader_http")
        if isinstance(error, NotLeader) and isinstance(address, str) and partition < view.partition_count:
            view.leaders[partition] = f"{self._session.scheme}://{address.rpartition('//')[2]}"
            view.terms[partition] = UNKNOWN_TERM
        elif isinstance(error, _DOUBTFUL):
            view.is_suspect = True

    def forget(self, topic: str) -> None:
        """Drop the entry of a topic that was deleted or does not exist."""
        self._topics.pop(topic, None)

    async def close(self) -> None:
        """End refreshes in progress."""
        tasks = list(self._refreshes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _refresh_task(self, name: str) -> asyncio.Task[TopicView]:
        task = self._refreshes.get(name)
        if task is None:
            task = self._refreshes[name] = asyncio.create_task(self._fetch(name))
            task.add_done_callback(lambda done: self._refreshed(name, done))
        return task

    def _refreshed(self, name: str, task: asyncio.Task[TopicView]) -> None:
        del self._refreshes[name]
        if not task.cancelled():
            task.exception()  # all waiting callers have the error; a background refresh may fail

    async def _fetch(self, name: str) -> TopicView:
        session = self._session
        partitions = await self.partitions(name)
        if any(one.leader is None for one in partitions):
            session.turn_away(session.preferred, NoLeader())
        found = await session.all_items(
            brokers.LIST, retry_timeout_s=TIMEOUT_S, attempt_timeout_s=ATTEMPT_TIMEOUT_S
        )
        advertised = {broker.broker_id: (broker.http or "").rstrip("/") for broker in found}
        urls = {broker: url for broker, url in advertised.items() if session.url_of(url) is not None}
        session.learn_brokers([urls[one.broker_id] for one in found if one.alive and one.broker_id in urls])
        view = TopicView(
            name,
            [None if one.leader is None else advertised.get(one.leader) for one in partitions],
            [one.leader_epoch for one in partitions],
            session.clock.monotonic(),
            session.metadata_version,
            [_by_rack(one, found, urls) for one in partitions],
            decommissioned=sum(one.state != "active" for one in partitions),
        )
        self._topics[name] = view
        return view

    async def partitions(self, name: str) -> list[bodies.PartitionDescription]:
        """The partitions of a topic, each as its leader describes it now; never from the cache."""
        return await partitions_of(self._session, name)


def _by_rack(
    partition: bodies.PartitionDescription,
    registered: Sequence[bodies.BrokerDescription],
    urls: Mapping[int, str],
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for broker in registered:
        url = urls.get(broker.broker_id)
        if (
            broker.rack is not None
            and url is not None
            and broker.alive
            and broker.broker_id in partition.in_sync
        ):
            found.setdefault(broker.rack, []).append(url)
    return found
