"""Chooses the replicas and leaders to move so that the brokers are balanced; pure, for the active controller.

Decides: the moves of one plan. Leaves to others: when a plan is made and how fast it is carried out
(``active``, ``plans``), moving replicas (``partitions.reassignment``), replicas that brokers have lost
(``healing``).

The steps, in this order; no step undoes an earlier step:

1. Racks: two replicas of a partition share a rack only if they cannot be on different racks.
2. Replicas: the numbers of replicas per broker differ by at most one, as far as racks allow.
3. Preferred leaders (the first replica of each partition): their numbers per broker differ by at most one, as
   far as replicas allow.
4. Bytes: brokers exchange replicas while their logs differ by more than a fifth of the mean.
5. Load: brokers exchange preferred leaders while their appended records per second differ by as much.

Each step makes the differences smaller, so a second plan right after the first is empty. Steps 4 and 5 use
measured values, which change: they begin above a fifth of the mean and end below a tenth.

A partition keeps its number of replicas. A partition that already moves counts at its target, and no plan
moves it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from partitions.metadata.image import MetadataImage, PlannedMove, TopicInfo
from raftlog.types import GroupId, NodeId
from raftlog.wire.limits import PLAN_MOVES_MAX

BEGINS_ABOVE: Final = 0.2  # of the mean: with ``ENDS_BELOW`` the hysteresis for measured values
ENDS_BELOW: Final = 0.1
BYTES_APART_MIN: Final = 256 << 20  # smaller differences are not worth copying
RECORDS_APART_MIN: Final = 100.0  # per second
EXCHANGES_MAX: Final = 100  # of one kind in one plan


class PartitionLoad(msgspec.Struct, frozen=True, array_like=True):
    """The size of a partition's log in bytes, and the records that its leader appends per second."""

    size_bytes: int = 0
    records_per_s: float = 0.0


Loads = Mapping[GroupId, PartitionLoad]


class PlanProposal(msgspec.Struct, frozen=True, array_like=True):
    """A plan that has not begun, the bytes that each move copies, and the estimated time of all copies."""

    made_at: int  # the metadata version
    moves: tuple[PlannedMove, ...]
    bytes_of: tuple[int, ...]
    copy_ms: int


_Key = tuple[str, int]
_Held = Mapping[NodeId, Collection[_Key]]
_NO_LOAD: Final = PartitionLoad()


def plan_balancing(
    image: MetadataImage, brokers: Collection[NodeId], loads: Loads
) -> tuple[PlannedMove, ...]:
    """The moves that balance ``brokers``; empty if they are balanced. Other brokers keep their replicas."""
    rows = _Rows(image, brokers, loads)
    rows.spread_over_racks()
    rows.even(rows.held, rows.movable, rows.move)
    rows.even(rows.led, rows.promotable, rows.promote)
    rows.exchange(rows.held, rows.can_move, rows.move, rows.size_of, BYTES_APART_MIN)
    rows.exchange(rows.led, rows.can_promote, rows.promote, rows.load_of, RECORDS_APART_MIN)
    return rows.moves()[:PLAN_MOVES_MAX]


def propose(
    image: MetadataImage, brokers: Collection[NodeId], loads: Loads, copy_bytes_per_s: int
) -> PlanProposal:
    """A plan and its cost, if each preferred leader sends its copies at ``copy_bytes_per_s``."""
    moves = plan_balancing(image, brokers, loads)
    bytes_of = []
    sent: Counter[NodeId] = Counter()
    for move in moves:
        group = image.topics[move.name].partitions[move.partition].group_id
        copies = len({*move.target} - {*move.replicas})
        bytes_of.append(copies * loads.get(group, _NO_LOAD).size_bytes)
        sent[move.replicas[0]] += bytes_of[-1]
    copy_ms = 1000 * max(sent.values(), default=0) // copy_bytes_per_s
    return PlanProposal(image.version, moves, tuple(bytes_of), copy_ms)


class _Rows:
    """The brokers of each partition while a plan is made, and what each broker holds and leads."""

    def __init__(self, image: MetadataImage, brokers: Collection[NodeId], loads: Loads) -> None:
        self._brokers = sorted(brokers)
        self._racks = {node: broker.rack or "" for node, broker in image.brokers.items()}
        self._topics: dict[_Key, TopicInfo] = {}
        self._loads: dict[_Key, PartitionLoad] = {}
        self._before: dict[_Key, tuple[NodeId, ...]] = {}
        self._rows: dict[_Key, list[NodeId]] = {}
        self._fixed: Counter[NodeId] = Counter()  # replicas of partitions that already move
        self._fixed_led: Counter[NodeId] = Counter()
        self._open: dict[tuple[NodeId, str], list[_Key]] = {}  # cleared when a row changes
        self._promotions: dict[NodeId, dict[NodeId, _Key]] = {}  # cleared when a row of the broker changes
        self.held: dict[NodeId, dict[_Key, None]] = {node: {} for node in self._brokers}
        self.led: dict[NodeId, dict[_Key, None]] = {node: {} for node in self._brokers}
        for topic in image.topics.values():
            for partition in topic.partitions:
                row = partition.target_replicas
                if partition.target:
                    self._fixed.update(row)
                    self._fixed_led[row[0]] += 1
                    continue
                key = (topic.name, partition.partition)
                self._topics[key] = topic
                self._loads[key] = loads.get(partition.group_id, _NO_LOAD)
                self._before[key] = row
                self._rows[key] = [*row]
                self._enter(key)

    def moves(self) -> tuple[PlannedMove, ...]:
        """The moves of all changed partitions.

        Moves that only change the leader, and so copy nothing, come first.
        """
        changed = [key for key, row in self._rows.items() if tuple(row) != self._before[key]]
        changed.sort(key=lambda key: ({*self._rows[key]} != {*self._before[key]}, key))
        return tuple(
            PlannedMove(key[0], self._topics[key].topic_id, key[1], self._before[key], tuple(self._rows[key]))
            for key in changed
        )

    def size_of(self, key: _Key) -> float:
        """The size in bytes of one replica of the partition."""
        return self._loads[key].size_bytes

    def load_of(self, key: _Key) -> float:
        """The records that the partition's leader appends per second."""
        return self._loads[key].records_per_s

    # Changes of one row.

    def can_move(self, key: _Key, giver: NodeId, taker: NodeId) -> bool:
        """Whether a replica may move from ``giver`` to ``taker``: the rule about racks allows it."""
        row = self._rows[key]
        return taker not in row and giver in row and self._may_enter(key, giver, self._racks[taker])

    def move(self, key: _Key, giver: NodeId, taker: NodeId) -> None:
        """Move a replica from ``giver`` to ``taker``.

        If ``giver`` is preferred leader, ``taker`` becomes preferred leader.
        """
        self._leave(key)
        row = self._rows[key]
        row[row.index(giver)] = taker
        self._enter(key)

    def can_promote(self, key: _Key, giver: NodeId, taker: NodeId) -> bool:
        """Whether ``taker`` may become preferred leader in place of ``giver``."""
        row = self._rows[key]
        return row[0] == giver and taker in row

    def promote(self, key: _Key, giver: NodeId, taker: NodeId) -> None:
        """Make ``taker`` the preferred leader in place of ``giver``."""
        self._leave(key)
        row = self._rows[key]
        row.remove(taker)
        row.insert(0, taker)
        self._enter(key)

    def movable(self, giver: NodeId, taker: NodeId) -> _Key | None:
        """The replica of ``giver`` that is cheapest to move to ``taker``, or None.

        A replica that already moves, or would move back, is cheapest, then a follower, then a small replica.
        """
        able = [key for key in self._open_to(giver, self._racks[taker]) if taker not in self._rows[key]]
        return min(able, key=lambda key: self._cost(key, giver, taker), default=None)

    def promotable(self, giver: NodeId, taker: NodeId) -> _Key | None:
        """A partition whose preferred leader is ``giver`` and which ``taker`` could lead, or None."""
        if giver not in self._promotions:
            found: dict[NodeId, _Key] = {}
            for key in self.led[giver]:
                for node in self._rows[key]:
                    found[node] = min(found.get(node, key), key)
            self._promotions[giver] = found
        return self._promotions[giver].get(taker)

    def _open_to(self, giver: NodeId, rack: str) -> list[_Key]:
        """The replicas of ``giver`` that the rule about racks allows to move to brokers of ``rack``."""
        found = self._open.get((giver, rack))
        if found is None:
            found = self._open[giver, rack] = [
                key for key in self.held[giver] if self._may_enter(key, giver, rack)
            ]
        return found

    def _cost(self, key: _Key, giver: NodeId, taker: NodeId) -> tuple[bool, bool, float, _Key]:
        before = self._before[key]
        is_free = taker in before or giver not in before
        return (not is_free, self._rows[key][0] == giver, self.size_of(key), key)

    # The steps.

    def spread_over_racks(self) -> None:
        """Move replicas out of racks that have more replicas of a partition than another rack would have."""
        for key, row in self._rows.items():
            for giver in list(row):
                racks = self._racks_without(key, giver)
                if not racks[self._racks[giver]]:
                    continue
                able = [node for node in self._brokers if node not in row]
                taker = min(
                    able,
                    key=lambda node: (racks[self._racks[node]], len(self.held[node]), node),
                    default=giver,
                )
                if racks[self._racks[taker]] < racks[self._racks[giver]]:
                    self.move(key, giver, taker)

    def even(
        self,
        items: _Held,
        choose: Callable[[NodeId, NodeId], _Key | None],
        shift: Callable[[_Key, NodeId, NodeId], None],
    ) -> None:
        """Shift items until no broker has two items more than another broker that it can give items to.

        Each shift takes a shortest path: a chain of brokers in which each gives an item to the next.
        """
        while self._even_once(items, choose, shift):
            pass  # a shift may have opened a path for brokers that had none

    def _even_once(
        self,
        items: _Held,
        choose: Callable[[NodeId, NodeId], _Key | None],
        shift: Callable[[_Key, NodeId, NodeId], None],
    ) -> bool:
        """Shift items until each broker with too many is balanced or has no path.

        Return whether any item was shifted.
        """
        fixed = self._fixed if items is self.held else self._fixed_led
        stuck: set[NodeId] = set()
        has_shifted = False

        def count(node: NodeId) -> int:
            return len(items[node]) + fixed[node]

        while True:
            donors = [node for node in self._brokers if node not in stuck]
            donor = max(donors, key=lambda node: (count(node), -node), default=None)
            if donor is None or count(donor) < 2 + min(map(count, self._brokers)):
                return has_shifted
            path, reached = self._path(donor, count, choose)
            if not path:
                stuck |= reached
            has_shifted |= bool(path)
            for key, giver, taker in path:
                shift(key, giver, taker)

    def _path(
        self,
        donor: NodeId,
        count: Callable[[NodeId], int],
        choose: Callable[[NodeId, NodeId], _Key | None],
    ) -> tuple[list[tuple[_Key, NodeId, NodeId]], set[NodeId]]:
        """The shortest chain of shifts from ``donor`` to a broker with at least two items fewer.

        Empty if there is no such broker. The second value has all brokers that a chain can reach.
        """
        by_count = sorted(self._brokers, key=lambda node: (count(node), node))
        came: dict[NodeId, list[tuple[_Key, NodeId, NodeId]]] = {donor: []}
        queue = [donor]
        for giver in queue:
            for taker in by_count:
                key = None if taker in came else choose(giver, taker)
                if key is None or any(key == earlier for earlier, _, _ in came[giver]):
                    continue
                came[taker] = [*came[giver], (key, giver, taker)]
                if count(taker) + 2 <= count(donor):
                    return came[taker], set(came)
                queue.append(taker)
        return [], set(came)

    def exchange(
        self,
        items: _Held,
        can: Callable[[_Key, NodeId, NodeId], bool],
        shift: Callable[[_Key, NodeId, NodeId], None],
        weight: Callable[[_Key], float],
        apart_min: float,
    ) -> None:
        """Exchange items between the heaviest and the lightest broker until their weights differ little."""
        if len(self._brokers) < 2:
            return
        bound = BEGINS_ABOVE
        for _ in range(EXCHANGES_MAX):
            total = {node: sum(map(weight, items[node])) for node in self._brokers}
            high, low = max(total, key=total.__getitem__), min(total, key=total.__getitem__)
            apart = total[high] - total[low]
            if apart <= max(bound * sum(total.values()) / len(total), apart_min):
                return
            given = [key for key in items[high] if can(key, high, low)]
            taken = sorted((key for key in items[low] if can(key, low, high)), key=weight)
            pair = _best_pair(given, taken, weight, apart)
            if pair is None:
                return
            shift(pair[0], high, low)
            shift(pair[1], low, high)
            bound = ENDS_BELOW

    def _may_enter(self, key: _Key, giver: NodeId, rack: str) -> bool:
        racks = self._racks_without(key, giver)
        return racks[rack] <= racks[self._racks[giver]]

    def _racks_without(self, key: _Key, giver: NodeId) -> Counter[str]:
        return Counter(self._racks[node] for node in self._rows[key] if node != giver)

    def _enter(self, key: _Key) -> None:
        row = self._rows[key]
        for node in row:
            self._promotions.pop(node, None)
            if node in self.held:
                self.held[node][key] = None
        if row[0] in self.led:
            self.led[row[0]][key] = None

    def _leave(self, key: _Key) -> None:
        self._open.clear()
        row = self._rows[key]
        for node in row:
            self._promotions.pop(node, None)
            if node in self.held:
                self.held[node].pop(key, None)
        if row[0] in self.led:
            self.led[row[0]].pop(key, None)


def _best_pair(
    given: list[_Key], taken: list[_Key], weight: Callable[[_Key], float], apart: float
) -> tuple[_Key, _Key] | None:
    """The exchange after which two brokers differ least, if that is less than nine tenths of ``apart``.

    ``taken`` is sorted by weight.
    """
    weights = [weight(key) for key in taken]
    best, least = None, 0.9 * apart
    for key in given:
        at = bisect_left(weights, weight(key) - apart / 2)
        for other in taken[max(at - 1, 0) : at + 1]:
            left = abs(apart - 2 * (weight(key) - weight(other)))
            if left < least:
                best, least = (key, other), left
    return best
