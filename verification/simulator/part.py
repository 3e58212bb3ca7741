"""Defines the interface between a run and a scenario: the scenario's topics, actors, faults and checks.

Decides: when a run calls which method of a scenario. Leaves to others: the phases of a run (``simulation``),
the list of scenarios (``scenarios``), and the parameters that are drawn for them (``scenario``).
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
"""Configuration of a topic; keys have underscores for dots."""

OFTEN_COMPACTED: Final[Config] = {
    "segment_bytes": 2048,
    "cleanup_policy": "compact",
    "segment_ms": 1_000,
    "delete_retention_ms": 300,
    "min_cleanable_dirty_ratio": "0.2",
}

Timed = Callable[[random.Random], None]
"""A function that injects a fault at a random time."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that a run creates before its faults, with three replicas."""

    name: str
    partitions: int
    config: Config


class Actor(Protocol):
    """A client or an operator of a scenario."""

    def run(self) -> Coroutine[object, None, None]:
        """Send requests until the producers of the run end."""


class Part:
    """One scenario in one run. Methods that a subclass does not override do nothing."""

    # Before the faults.

    async def prepared(self) -> None:
        """Return once the cluster is ready for the creation of topics."""

    def topics(self, config: Config) -> Sequence[Topic]:
        """Return the topics of the scenario. ``config`` is the configuration of the topic that all clients
        use.
        """
        return ()

    # During the faults.

    def actors(self) -> Sequence[Actor]:
        """Return the actors of the scenario, which act until the producers of the run end."""
        return ()

    def start(self) -> list[asyncio.Task[None]]:
        """Start a task for each actor; a task ends when its actor ends."""
        loop = asyncio.get_running_loop()
        return [loop.create_task(actor.run()) for actor in self.actors()]

    def faults(self) -> Mapping[str, Timed]:
        """Return functions that inject the scenario's faults at random times, by kind."""
        return {}

    def may_happen(self, kind: str) -> bool:
        """Return whether a fault of the scenario can be injected now."""
        return True

    def target(self, rng: random.Random) -> tuple[str, int] | None:
        """Return the topic whose replicas an operator moves now, and its number of partitions. None: the run
        chooses another topic.
        """
        return None

    # Events of brokers.

    def began(self, machine: Machine) -> None:
        """Handle a machine on which a process has begun."""

    async def serves(self, machine: Machine, broker: Broker) -> Listener | None:
        """Handle a broker that has started; returns its HTTP listener, if any."""
        return None

    def ended(self, machine: Machine, process: Process, *, silently: bool) -> None:
        """Handle a process that has ended."""

    def begins_again(self, machine: Machine) -> None:
        """Handle a broker whose disk is recognised as an older copy."""

    def held(self, machine: Machine) -> Iterable[tuple[str, int]]:
        """Return the resources that a broker holds for the scenario, by name; without clients it must hold
        none.
        """
        return ()

    def committed(self, machine: Machine, group_id: GroupId) -> None:
        """Handle a group's commit index that has changed on a machine."""

    def changed(self, record: GroupRecord, replica: ReplicaRecord, group: RaftGroup[object]) -> None:
        """Handle a replica whose files or numbers have changed."""

    def shown(self, image: MetadataImage) -> None:
        """Handle metadata that a broker has applied."""

    # The end.

    def heal(self) -> None:
        """Inject no more faults from now on."""

    async def faults_ended(self) -> None:
        """Wait until all work that the faults caused is complete; called right after the last fault."""

    async def converged(self, convergence: Convergence) -> None:
        """Called when every partition accepts records again after the faults, while the actors still run."""

    async def actors_ended(self) -> None:
        """Called after the last actor has ended, when there are no more faults."""

    async def check(self) -> Mapping[str, int]:
        """Check the scenario once all replicas are equal.

        Returns counts, by name, that the run reports beside the counts of its faults.
        """
        return {}

    def stopped(self) -> None:
        """Called when a run has ended without a violation."""
