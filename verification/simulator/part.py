"""The part of a scenario in one run: its topics, actors, faults and checks.

Decides: when a run asks for it. Leaves to others: the phases of a run (``simulation``), which scenarios there
are (``scenarios``), and what is drawn for them (``scenario``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from broker.broker import Broker
from broker.listeners.listener import Listener
from partitions.metadata.image import MetadataImage
from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import GroupId
from verification.simulator.event_loop import Process
from verification.simulator.machine import Machine
from verification.simulator.records import GroupRecord, ReplicaRecord

if TYPE_CHECKING:
    from verification.simulator.convergence import Convergence

Config = dict[str, int | str]
"""Settings of a topic, with underscores for dots."""

OFTEN_COMPACTED: Final[Config] = {
    "segment_bytes": 2048,
    "cleanup_policy": "compact",
    "segment_ms": 1_000,
    "delete_retention_ms": 300,
    "min_cleanable_dirty_ratio": "0.2",
}

Timed = Callable[[random.Random], None]
"""Injects a fault at a random time."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that a run creates before its faults, with three replicas."""

    name: str
    partitions: int
    config: Config


class Actor(Protocol):
    """A client or an operator."""

    def run(self) -> Coroutine[object, None, None]:
        """Act until the run no longer produces."""


class Part:
    """One scenario in one run. What a scenario does not override adds nothing."""

    # Before the faults.

    async def prepared(self) -> None:
        """Return once topics may be made."""

    def topics(self, config: Config) -> Sequence[Topic]:
        """The topics of the scenario. ``config`` is the configuration of the topic that all clients use."""
        return ()

    # During the faults.

    def actors(self) -> Sequence[Actor]:
        """The actors of the scenario, which run until the run no longer produces."""
        return ()

    def start(self) -> list[asyncio.Task[None]]:
        """Start all actors; the tasks end with them."""
        loop = asyncio.get_running_loop()
        return [loop.create_task(actor.run()) for actor in self.actors()]

    def faults(self) -> Mapping[str, Timed]:
        """The faults of the scenario at random times, by kind."""
        return {}

    def may_happen(self, kind: str) -> bool:
        """Whether a fault of its own can be injected now."""
        return True

    def target(self, rng: random.Random) -> tuple[str, int] | None:
        """The topic whose replicas an operator moves now, and its number of partitions; None: another one."""
        return None

    # Events of brokers.

    def began(self, machine: Machine) -> None:
        """A machine is on."""

    async def serves(self, machine: Machine, broker: Broker) -> Listener | None:
        """A broker has started; returns its HTTP listener, if any."""
        return None

    def ended(self, machine: Machine, process: Process, *, silently: bool) -> None:
        """A process is gone."""

    def begins_again(self, machine: Machine) -> None:
        """A broker takes its disk for an older copy."""

    def held(self, machine: Machine) -> Iterable[tuple[str, int]]:
        """Resources that a broker holds for it, by name: none without clients."""
        return ()

    def committed(self, machine: Machine, group_id: GroupId) -> None:
        """The commit index of a group has changed."""

    def changed(self, record: GroupRecord, replica: ReplicaRecord, group: RaftGroup[object]) -> None:
        """A replica has changed."""

    def shown(self, image: MetadataImage) -> None:
        """A broker has applied metadata."""

    # The end.

    def heal(self) -> None:
        """No more faults from now on."""

    async def faults_ended(self) -> None:
        """Right after that: return once nothing of it is under way."""

    async def converged(self, convergence: Convergence) -> None:
        """Every partition takes records again, and the actors still run."""

    async def actors_ended(self) -> None:
        """After the last actor, without faults."""

    async def check(self) -> Mapping[str, int]:
        """All replicas are equal. Returns how often things happened that count as faults."""
        return {}

    def stopped(self) -> None:
        """Time has ended, and nothing was violated."""
