"""Sends requests of clients to a group of bare cores: entries and reads, with pauses.

Decides: the receivers, and the pauses, in which the group may become quiescent during faults.
"""

from __future__ import annotations

import random

from raftlog.core.ready import Role
from verification.simulator.raft_level.group import Group

LULL_STEPS = (40, 150)


class Requests:
    """The clients' requests to one group."""

    def __init__(self, group: Group, seed: int) -> None:
        self._group = group
        group.ask = self.step
        self._rng = random.Random(f"{seed} requests")
        self._lulls_rng = random.Random(f"{seed} lulls")

    def step(self) -> None:
        """Send requests, mostly to a node that leads or believes that it leads, sometimes to any node."""
        group, odds, rng = self._group, self._group.odds, self._rng
        if not (odds.propose or odds.read) or group.now < group.quiet_until:
            return
        if odds.lull and self._lulls_rng.random() < odds.lull:
            group.quiet_until = group.now + self._lulls_rng.randint(*LULL_STEPS)
        running = [node for node in group.nodes.values() if node.is_up]
        leading = [node for node in running if node.core.role is Role.LEADER]
        for node in leading if rng.random() < 0.9 else running:
            if rng.random() < odds.propose:
                for _ in range(rng.choice((1, 1, 3))):
                    group.propose(node, rng.choice((1, 1, 5)))
            if rng.random() < odds.read and node.is_up:
                group.read(node)
