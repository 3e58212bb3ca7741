"""Groups without members whose offsets expire: operators commit for them now and then.

Decides: when a group may be forgotten, by its commits, in the order of the log, and by the clocks of the
machines. Leaves to others: the records (``consumer_group``), and when clocks jump (``clocks``).

Each offset is committed once, so that a committed one names its request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Final

from chaos.simulator.clients import TOPIC
from chaos.simulator.clocks import RIGHT_MS
from chaos.simulator.expiry_odds import ExpiryOdds
from chaos.simulator.machine import Machine
from chaos.simulator.result import Broken
from chaos.simulator.simulated_cluster import SimulatedCluster
from groups.records import CommittedOffset, GroupKey, Key, OffsetKey, Value
from groups.requests import Commit, OffsetCommit
from raftlog.errors import RaftlogError
from raftlog.node.cluster_time import CLOCK_BOUNDS
from raftlog.records.keys import partition_for_key
from raftlog.types import NodeId

KEPT: Final = "C10 a group that was used within its retention is kept"
TRUSTED: Final = "C10 no group is forgotten while no time is trusted"
EXPIRED: Final = "groups forgotten"
GROUPS: Final = 3
FIRST_OFFSET: Final = 1_000_000  # of these groups
RIGHT_S: Final = 2 * RIGHT_MS / 1000 + 0.1  # by how much two clocks differ that are right
DECIDED_S: Final = 1.0  # before it is appended, at most


@dataclass(slots=True)
class _Trust:
    """When no time could be trusted on a machine: since then, and the spans before."""

    since_s: float | None = None
    spans: list[tuple[float, float]] = field(default_factory=list)

    def look(self, is_trusted: bool, now_s: float) -> None:
        """The clock as it is now."""
        if is_trusted and self.since_s is not None:
            self.spans.append((self.since_s, now_s))
            self.since_s = None
        elif not is_trusted and self.since_s is None:
            self.since_s = now_s

    def lacked(self, first_s: float, last_s: float) -> bool:
        """Whether no time was trusted from one time to another."""
        spans = self.spans if self.since_s is None else [*self.spans, (self.since_s, float("inf"))]
        return any(begin_s <= first_s and last_s <= end_s for begin_s, end_s in spans)


class IdleGroups:
    """The groups of one partition of ``__offsets`` that have no members."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        odds: ExpiryOdds,
        partition: int,
        send: Callable[[Commit], Awaitable[object]],
    ) -> None:
        """``send`` asks any broker."""
        partitions = cluster.odds.offsets_partitions
        names = (f"idle {number}" for number in count())
        here = (name for name in names if partition_for_key(name.encode(), partitions) == partition)
        self.names = frozenset(islice(here, GROUPS))
        self.expired = 0
        self._cluster = cluster
        self._odds = odds
        self._send = send
        self._offsets = count(FIRST_OFFSET)
        self._sent_s: dict[int, float] = {}  # by offset
        self._used_s: dict[str, float] = {}  # by group, the last request whose offset is committed
        self._trust = {machine.node: _Trust() for machine in cluster.machines}

    def look(self) -> None:
        """Note which clocks are trusted now."""
        for machine in self._cluster.machines:
            self._trust[machine.node].look(self._may_be_trusted(machine), self._cluster.loop.now)

    def _may_be_trusted(self, machine: Machine) -> bool:
        """Whether its clock is near the time, and its broker knows one. Machines that are off count, too."""
        is_near = abs(machine.wall_skew_ms) <= CLOCK_BOUNDS.jump_ms_max
        return machine.broker is None or (is_near and self._cluster.clocks.knows(machine))

    async def use(self, name: str) -> None:
        """Commit for a group, with pauses, until the run no longer produces."""
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
        """One committed record, and the leader that has appended it, and when. Raises ``Broken``."""
        if isinstance(key, OffsetKey) and isinstance(value, CommittedOffset):
            self._used_s[key.group] = self._sent_s[value.offset]
        elif isinstance(key, GroupKey) and value is None:
            self._forgotten(key.group, writer, appended_s)

    def _forgotten(self, name: str, writer: NodeId, at_s: float) -> None:
        self.expired += 1
        used_s = self._used_s.pop(name, 0.0)
        if at_s - used_s < self._odds.retention_ms / 1000 - RIGHT_S:
            raise Broken(KEPT, f"{name} is forgotten at {at_s:.3f} s, and was used at {used_s:.3f} s")
        if self._trust[writer].lacked(at_s - DECIDED_S, at_s):
            raise Broken(TRUSTED, f"{name} is forgotten at {at_s:.3f} s by broker {writer}")
