"""Groups without members whose offsets expire: operators sometimes commit offsets for these groups.

Decides: which commits are sent. Leaves to others: reading the committed records (``part``), and when a group
may be deleted (``forgetting``).

Each offset is committed once, so that a committed offset identifies its request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from itertools import count, islice
from typing import Final

from groups.records import CommittedOffset, GroupKey, Key, OffsetKey, Value
from groups.requests import Commit, OffsetCommit
from raftlog.errors import RaftlogError
from raftlog.records.keys import partition_for_key
from raftlog.types import NodeId
from verification.simulator.clients import TOPIC
from verification.simulator.scenarios.expiry.forgetting import Forgetting
from verification.simulator.scenarios.expiry.odds import ExpiryOdds
from verification.simulator.simulated_cluster import SimulatedCluster

KEPT: Final = "C10 a group that was used within its retention is kept"
TRUSTED: Final = "C10 no group is forgotten while no time is trusted"
EXPIRED: Final = "groups forgotten"
GROUPS: Final = 3
FIRST_OFFSET: Final = 1_000_000  # of these groups


class IdleGroups:
    """The groups without members whose rows are in one partition of ``__offsets``."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        odds: ExpiryOdds,
        partition: int,
        send: Callable[[Commit], Awaitable[object]],
    ) -> None:
        """Create the groups; ``send`` sends a request to any broker."""
        partitions = cluster.odds.settings.offsets_partitions
        names = (f"idle {number}" for number in count())
        here = (name for name in names if partition_for_key(name.encode(), partitions) == partition)
        self.names = frozenset(islice(here, GROUPS))
        self._cluster = cluster
        self._odds = odds
        self._send = send
        self._offsets = count(FIRST_OFFSET)
        self._sent_s: dict[int, float] = {}  # by offset
        self._forgetting = Forgetting(cluster, odds.retention_ms, kept=KEPT, trusted=TRUSTED)
        self.look = self._forgetting.look

    @property
    def expired(self) -> int:
        """Return the number of groups that expired."""
        return self._forgetting.forgotten

    async def use(self, name: str) -> None:
        """Commit offsets for one group, with pauses, until the producers of the run end."""
        rng = self._cluster.rng(f"commits of {name}")
        mean_s = self._odds.pause * self._odds.retention_ms / 1000
        while self._cluster.is_producing:
            offset = next(self._offsets)
            commit = OffsetCommit(topic=TOPIC, topic_id="t", partition=0, offset=offset)
            self._sent_s[offset] = self._cluster.loop.now
            with contextlib.suppress(RaftlogError):
                await self._send(Commit(group=name, offsets=(commit,), is_forced=True))
            await asyncio.sleep(rng.expovariate(1.0) * mean_s)

    def committed(self, writer: NodeId, appended_s: float, key: Key, value: Value | None) -> None:
        """Check a committed record, given the leader that appended it and the time of the append. Raises
        ``Broken``.
        """
        if isinstance(key, OffsetKey) and isinstance(value, CommittedOffset):
            self._forgetting.used(key.group, self._sent_s[value.offset])
        elif isinstance(key, GroupKey) and value is None:
            self._forgetting.deleted(key.group, writer, appended_s)
