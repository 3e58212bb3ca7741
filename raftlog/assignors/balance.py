"""The number of partitions of each member: an even distribution first, then as few moves as possible.

Partitions that may go to equal sets of members are not distinguished: they form a ``Pool``, and the result is
the number of partitions of each pool that each member gets. Two rules, in order of precedence:

1. *Even.* No chain of moves (one partition from a member to a second one, another partition from there to a
   third one, and so on) ends at a member that has two partitions less than the first one. This is the least
   sum of squares, and stronger than Kafka's rule, which considers chains of one move.
2. *Sticky.* Among all even results, as many partitions as possible stay with the members that owned them.

The result is a flow of least cost from the pools to the members. Each partition has two costs. The n-th
partition of a member costs n: this keeps the result even, and counts more than the second cost. The second
cost is 1 if the member already has as many partitions of the pool as it owned, else 0. Partitions are added
along cheapest paths of the residual network: a member that receives a partition may have to give back a
partition of another pool, which goes to the next member. In each round all paths of one cost are used: the
distances are found by relaxation, then the paths by depth-first search, as in Dinic's algorithm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from sys import maxsize
from typing import Final

_MOVE: Final = 1 << 32  # more than the length of any path
_FAR: Final = maxsize


@dataclass(slots=True, eq=False)
class Member:
    """A member of the group, with the number and the pools of the partitions that it has received so far."""

    name: str
    load: int = 0
    pools: dict[Pool, None] = field(default_factory=dict)  # pools of its partitions; an ordered set


@dataclass(slots=True, eq=False)
class Pool:
    """Partitions whose possible owners are equal sets of members."""

    left: int  # partitions that no member has received yet
    members: Sequence[Member]
    owned: Mapping[Member, int]  # the number of partitions that each owner had
    given: dict[Member, int] = field(init=False)
    homes: dict[Member, None] = field(init=False)  # members with fewer than they owned; an ordered set

    def __post_init__(self) -> None:
        self.given = dict.fromkeys(self.members, 0)
        self.homes = dict.fromkeys(self.owned)

    def moved(self, member: Member) -> bool:
        """Whether this member has received more partitions of the pool than it owned before."""
        return self.given[member] > self.owned.get(member, 0)

    def give(self, member: Member, change: int) -> None:
        """Give a member one partition of the pool (1), or take one back (-1)."""
        given = self.given[member] = self.given[member] + change
        if given:
            member.pools[self] = None
        else:
            del member.pools[self]
        if given < self.owned.get(member, 0):
            self.homes[member] = None
        else:
            self.homes.pop(member, None)


def share(pools: Sequence[Pool]) -> None:
    """Give each partition of the pools to a member. Each pool must have a possible member.

    Equal arguments give equal results: pools and members are visited in their order.
    """
    while sources := [pool for pool in pools if pool.left]:
        one_round = _Round(sources)
        for source in sources:
            while source.left and (path := one_round.path(source)):
                _add_one(path)


Step = tuple[Pool, Member]
"""A step of a path: the member gets one more partition of the pool.

If the path continues, the member gives a partition of the next step's pool back.
"""


def _add_one(path: Sequence[Step]) -> None:
    first_pool, last_member = path[0][0], path[-1][1]
    first_pool.left -= 1
    last_member.load += 1
    for pool, member in path:
        pool.give(member, 1)
    for (_, member), (pool, _) in pairwise(path):
        pool.give(member, -1)


class _Round:
    """All paths of the least cost that begin at a pool with partitions left.

    The distance of a pool or member is the cost of the cheapest path to it, in ``_MOVE``, plus the length of
    that path. So of two paths with equal costs the shorter path has the smaller distance, and no path visits
    a pool or member twice.
    """

    def __init__(self, sources: Sequence[Pool]) -> None:
        self._pools = dict.fromkeys(sources, 0)  # distances of the reached pools
        self._members: dict[Member, int] = {}
        self._pool_exits: dict[Pool, list[Member]] = {}  # possible continuations of paths, the next one last
        self._member_exits: dict[Member, list[Pool]] = {}
        self._find_distances()
        costs = {member: (member.load, distance // _MOVE) for member, distance in self._members.items()}
        least = min(costs.values())
        self._ends = {member for member, cost in costs.items() if cost == least}

    def _find_distances(self) -> None:
        members = self._members
        waiting = deque(self._pools)
        while waiting:
            pool = waiting.popleft()
            here = self._pools[pool] + 1
            for nearby, distance in ((pool.homes, here), (pool.members, here + _MOVE)):
                for member in nearby:
                    if members.get(member, _FAR) > distance:
                        members[member] = distance
                        waiting.extend(self._nearer_pools(member, distance))

    def _nearer_pools(self, member: Member, distance: int) -> list[Pool]:
        """The pools whose distance falls because the distance of this member has fallen."""
        found = []
        for pool in member.pools:
            beyond = distance + 1 - _MOVE * pool.moved(member)
            if self._pools.get(pool, _FAR) > beyond:
                self._pools[pool] = beyond
                found.append(pool)
        return found

    def path(self, source: Pool) -> list[Step]:
        """Return another cheapest path from a pool; empty if this round has no more.

        Exits that lead nowhere are removed.
        """
        steps: list[Step] = []
        pool = source
        while True:
            exits = self._exits_of_pool(pool)
            if not exits:
                if not steps:
                    return []
                pool, member = steps.pop()
                self._member_exits[member].pop()
            elif (member := exits[-1]) in self._ends:
                self._ends.remove(member)
                return [*steps, (pool, member)]
            elif ways := self._exits_of_member(member):
                steps.append((pool, member))
                pool = ways[-1]
            else:
                exits.pop()

    def _exits_of_pool(self, pool: Pool) -> list[Member]:
        """The members that continue a cheapest path through this pool; the last of them is the
        next to try.
        """
        exits = self._pool_exits.get(pool)
        if exits is None:
            exits = self._pool_exits[pool] = [*reversed(pool.members)]
        here = self._pools[pool] + 1
        while exits and self._members[exits[-1]] != here + _MOVE * (exits[-1] not in pool.homes):
            exits.pop()
        return exits

    def _exits_of_member(self, member: Member) -> list[Pool]:
        """The pools of which this member may give a partition back on a cheapest path; the last is the next
        to try.
        """
        exits = self._member_exits.get(member)
        if exits is None:
            exits = self._member_exits[member] = [*reversed(member.pools)]
        here = self._members[member] + 1
        while exits:
            pool = exits[-1]
            if pool.given[member] and self._pools[pool] == here - _MOVE * pool.moved(member):
                break
            exits.pop()
        return exits
