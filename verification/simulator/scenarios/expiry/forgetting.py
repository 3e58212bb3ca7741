"""Checks of expiry: a coordinator deletes only rows that were unused for a retention of trusted time.

Decides: whether a deletion came too early, judged by the requests that were sent and by the machines' clocks.
Leaves to others: the requests that use rows (``idle_groups``, ``transactions.idle``), and when clocks jump
(``clocks``).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from raftlog.node.cluster_time import CLOCK_BOUNDS
from raftlog.types import NodeId
from verification.simulator.clocks import RIGHT_MS
from verification.simulator.machine import Machine
from verification.simulator.result import Broken
from verification.simulator.simulated_cluster import SimulatedCluster

RIGHT_S: Final = 2 * RIGHT_MS / 1000 + 0.1  # by how much two clocks differ that are right
DECIDED_S: Final = 1.0  # before it is appended, at most


@dataclass(slots=True)
class _Trust:
    """The times at which a machine's clock is not trusted: the earlier spans, and the start of the current
    span.
    """

    since_s: float | None = None
    spans: list[tuple[float, float]] = field(default_factory=list)

    def look(self, is_trusted: bool, now_s: float) -> None:
        """Note whether the clock is trusted at this time."""
        if is_trusted and self.since_s is not None:
            self.spans.append((self.since_s, now_s))
            self.since_s = None
        elif not is_trusted and self.since_s is None:
            self.since_s = now_s

    def lacked(self, first_s: float, last_s: float) -> bool:
        """Return whether the clock was not trusted at any time between the two given times."""
        spans = self.spans if self.since_s is None else [*self.spans, (self.since_s, float("inf"))]
        return any(begin_s <= first_s and last_s <= end_s for begin_s, end_s in spans)


class Forgetting:
    """The last uses and the deletions of rows that a coordinator keeps for a retention after their
    last use.
    """

    def __init__(self, cluster: SimulatedCluster, retention_ms: int, *, kept: str, trusted: str) -> None:
        """``kept`` and ``trusted`` are the titles of the invariants that a deletion may violate."""
        self.forgotten = 0
        self._cluster = cluster
        self._retention_s = retention_ms / 1000
        self._kept, self._trusted = kept, trusted
        self._used_s: dict[Hashable, float] = {}  # when the last request was sent that has taken effect
        self._trust = {machine.node: _Trust() for machine in cluster.machines}

    def look(self) -> None:
        """Note for each machine whether its clock is trusted now."""
        for machine in self._cluster.machines:
            self._trust[machine.node].look(self._may_be_trusted(machine), self._cluster.loop.now)

    def _may_be_trusted(self, machine: Machine) -> bool:
        """Return whether a machine's clock is near the true time and its broker knows the cluster time.

        True also for a machine that is off.
        """
        is_near = abs(machine.wall_skew_ms) <= CLOCK_BOUNDS.jump_ms_max
        return machine.broker is None or (is_near and self._cluster.clocks.knows(machine))

    def used(self, thing: Hashable, sent_s: float) -> None:
        """Note that a committed request, which was sent at this time, used a row."""
        self._used_s[thing] = sent_s

    def deleted(self, thing: Hashable, writer: NodeId, at_s: float) -> None:
        """Check a committed deletion of a row, which ``writer`` appended at this time. Raises ``Broken``."""
        self.forgotten += 1
        used_s = self._used_s.pop(thing, 0.0)
        if at_s - used_s < self._retention_s - RIGHT_S:
            raise Broken(self._kept, f"{thing} is forgotten at {at_s:.3f} s, and was used at {used_s:.3f} s")
        if self._trust[writer].lacked(at_s - DECIDED_S, at_s):
            raise Broken(self._trusted, f"{thing} is forgotten at {at_s:.3f} s by broker {writer}")
