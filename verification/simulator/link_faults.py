"""Injects faults between machines: blocked, slow and silent directions of links, and broken connections.

Decides: which directions are affected, and when they heal. Leaves to others: the effect of a blocked, silent
or slow direction on frames (``network``), and when a fault comes (``faults``).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from raftlog.types import NodeId
from verification.simulator.machine import Machine
from verification.simulator.odds import STALE_METADATA
from verification.simulator.simulated_cluster import SimulatedCluster

T = TypeVar("T")

Later = Callable[[random.Random, float, float, Callable[[], None]], None]


class LinkFaults:
    """Faults of the links between machines.

    ``later`` calls a function after a random time between two bounds, unless all faults are healed before.
    """

    def __init__(self, cluster: SimulatedCluster, later: Later) -> None:
        self._cluster = cluster
        self._later = later
        self.timed: dict[str, Callable[[random.Random], None]] = {
            "halves": self._halves,
            "one way": self._one_way,
            "level": self._ring,
            "break connections": self._break_connections,
            "silent links": self._silent_links,
            "slow links": lambda rng: self._slow(rng, self._drawn_pairs(rng)),
            STALE_METADATA: self._stale_metadata,
        }

    def isolate(self, rng: random.Random, machine: Machine) -> None:
        """Isolate one machine: it neither sends nor receives."""
        others = [other.node for other in self._others(machine)]
        self._block(
            rng, [(machine.node, other) for other in others] + [(other, machine.node) for other in others]
        )

    def _halves(self, rng: random.Random) -> None:
        nodes = [machine.node for machine in self._cluster.machines]
        side = set(rng.sample(nodes, len(nodes) // 2))
        self._block(
            rng, [(one, other) for one in nodes for other in nodes if (one in side) != (other in side)]
        )

    def _one_way(self, rng: random.Random) -> None:
        self._block(rng, self._drawn_pairs(rng))

    def _ring(self, rng: random.Random) -> None:
        """Block links so that every machine reaches a majority of machines, and each machine another
        majority.
        """
        nodes = [machine.node for machine in self._cluster.machines]
        rng.shuffle(nodes)
        count = len(nodes)
        near = {0, 1, count - 1}
        self._block(
            rng,
            [
                (nodes[one], nodes[other])
                for one in range(count)
                for other in range(count)
                if (one - other) % count not in near or (count == 3 and {one, other} == {0, 1})
            ],
        )

    def _block(self, rng: random.Random, directions: list[tuple[NodeId, NodeId]]) -> None:
        network = self._cluster.network
        self._cluster.trace.note(None, f"nothing passes {directions}")
        network.block(directions, holds=rng.random() < 0.5)
        self._later(rng, 0.1, 4.0, network.heal)

    def _break_connections(self, rng: random.Random) -> None:
        nodes = [machine.node for machine in self._cluster.machines]
        for one in nodes:
            for other in nodes:
                if one != other and rng.random() < 0.4:
                    self._cluster.network.break_connection((one, other))

    def slow_all(self, rng: random.Random, machine: Machine) -> None:
        """Delay all messages of one machine by more than an election timeout; their order stays, and none is
        lost.
        """
        self._slow(rng, [(machine.node, other.node) for other in self._others(machine)])

    def _silent_links(self, rng: random.Random) -> None:
        """Let some connections look open and deliver nothing until they are dialled again, even after all
        faults are healed.
        """
        for direction in self._drawn_pairs(rng):
            self._cluster.network.silence(direction)

    def _stale_metadata(self, rng: random.Random) -> None:
        """Let some brokers act on old metadata, while all other messages reach them. Without effect if a
        broker is alone.
        """
        for machine in _some(rng, self._cluster.machines):
            self._cluster.network.withhold_metadata(machine.node)
        self._later(rng, 0.5, 4.0, self._cluster.network.heal)

    def _slow(self, rng: random.Random, directions: list[tuple[NodeId, NodeId]]) -> None:
        odds, network = self._cluster.odds, self._cluster.network
        election_s = odds.settings.election_ticks * odds.settings.tick_ms / 1000
        for direction in directions:
            network.slow(direction, election_s * rng.uniform(1.0, 5.0))
        self._later(rng, 2 * election_s, 12 * election_s, network.heal)

    def _drawn_pairs(self, rng: random.Random) -> list[tuple[NodeId, NodeId]]:
        nodes = [machine.node for machine in self._cluster.machines]
        pairs = [(one, other) for one in nodes for other in nodes if one != other]
        return _some(rng, pairs)

    def _others(self, machine: Machine) -> list[Machine]:
        return [other for other in self._cluster.machines if other is not machine]


def _some(rng: random.Random, of: list[T]) -> list[T]:
    """Draw at random up to half of the given items."""
    half = len(of) // 2
    return rng.sample(of, rng.randint(min(1, half), half))
