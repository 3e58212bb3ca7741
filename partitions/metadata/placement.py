"""Places the replicas of new partitions on brokers: a pure function of the brokers and their replicas.

Decides: which brokers hold a partition and which of them is its preferred leader. Leaves to others: which
brokers may be used, and limits (``planner``).

Three rules, in this order. Two replicas of a partition never share a broker, and share a rack only if every
rack has one. On brokers that began empty, with equally many in each rack, the numbers of replicas per broker
differ by at most one, and so do the numbers of led partitions. Equal arguments give equal results.

The numbers stay even as follows. Replicas go to the least loaded brokers; *among equals, to brokers that lead
most*. The holder that leads least becomes preferred leader; *among equals, the broker that holds most*. With
these two tie-breaks, either all brokers that hold least are among those that lead least, or the reverse, so
one broker can always take both. The rule first chooses racks, then brokers in a rack; all brokers without a
label form one rack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from raftlog.types import NodeId
from raftlog.units import counted
from raftlog.wire.limits import REPLICAS_DEFAULT

DEFAULT_REPLICAS: Final = REPLICAS_DEFAULT

Placement = tuple[tuple[NodeId, ...], ...]
"""One row of brokers for each partition; the first broker of a row is the preferred leader."""


@dataclass(slots=True)
class _Holder:
    """The number of replicas and leaders that a broker, or a rack of brokers, has."""

    key: int | str
    size: int = 1  # brokers
    replicas: int = 0
    leaders: int = 0

    @property
    def replicas_each(self) -> float:
        return self.replicas / self.size

    @property
    def leaders_each(self) -> float:
        return self.leaders / self.size


@dataclass(slots=True)
class _Rack(_Holder):
    brokers: list[_Holder] = field(default_factory=list)


def default_replicas(brokers: int) -> int:
    """The default replication factor: 3 if there are 3 brokers, else 1."""
    return DEFAULT_REPLICAS if brokers >= DEFAULT_REPLICAS else 1


def place(
    brokers: Mapping[NodeId, str | None],
    existing: Iterable[Sequence[NodeId]],
    partitions: int,
    replication_factor: int,
) -> Placement:
    """Place new partitions on ``brokers`` (rack by broker id), next to the ``existing`` rows of replicas.

    Raises ``ValueError`` for a factor below 1 or above the number of brokers.
    """
    if not 1 <= replication_factor <= len(brokers):
        raise ValueError(f"replication factor {replication_factor} on {counted(len(brokers), 'broker')}")
    racks = _racks(brokers, existing)
    return tuple(_place_one(racks, replication_factor) for _ in range(partitions))


def _racks(brokers: Mapping[NodeId, str | None], existing: Iterable[Sequence[NodeId]]) -> list[_Rack]:
    holders = {broker: _Holder(broker) for broker in sorted(brokers)}
    for row in existing:
        for position, broker in enumerate(row):
            holder = holders.get(broker)
            if holder is not None:
                holder.replicas += 1
                holder.leaders += position == 0
    racks = {name: _Rack(name, size=0) for name in sorted({rack or "" for rack in brokers.values()})}
    for broker, holder in holders.items():
        rack = racks[brokers[broker] or ""]
        rack.brokers.append(holder)
        rack.size += 1
        rack.replicas += holder.replicas
        rack.leaders += holder.leaders
    return list(racks.values())


def _place_one(racks: Sequence[_Rack], replication_factor: int) -> tuple[NodeId, ...]:
    counts = _share_among_racks(racks, replication_factor)
    for rack in racks:
        rack.replicas += counts[rack.key]
    leading = _leads_next(rack for rack in racks if counts[rack.key])
    leading.leaders += 1
    row: list[NodeId] = []
    for rack in racks:
        chosen = _least_loaded(rack.brokers, counts[rack.key], with_leader=rack is leading)
        for broker in chosen:
            broker.replicas += 1
        if rack is leading:
            leader = _leads_next(chosen)
            leader.leaders += 1
            row.insert(0, _id(leader))
            chosen.remove(leader)
        row.extend(_id(broker) for broker in chosen)
    return tuple(row)


def _share_among_racks(racks: Sequence[_Rack], replication_factor: int) -> dict[int | str, int]:
    """The number of replicas for each rack, as equal as the sizes of the racks allow."""
    counts = {rack.key: 0 for rack in racks}
    left = replication_factor
    while left:
        with_room = [rack for rack in racks if counts[rack.key] < rack.size]
        taken = _least_loaded(with_room, left, with_leader=left == replication_factor)
        for rack in taken:
            counts[rack.key] += 1
        left -= len(taken)
    return counts


HolderType = TypeVar("HolderType", bound=_Holder)


def _least_loaded(holders: Sequence[HolderType], count: int, *, with_leader: bool) -> list[HolderType]:
    """Choose up to ``count`` holders of the lowest load.

    ``with_leader``: if possible, choose a holder that leads no more partitions than any other holder.
    """
    order = sorted(holders, key=_by_load)
    taken = order[:count]
    if with_leader and count < len(order):
        leads_least = min(holder.leaders_each for holder in order)
        if all(holder.leaders_each > leads_least for holder in taken):
            equals = (
                holder
                for holder in order[count:]
                if holder.leaders_each == leads_least and holder.replicas_each == taken[-1].replicas_each
            )
            taken[-1] = next(equals, taken[-1])
    return taken


def _by_load(holder: _Holder) -> tuple[float, float, int | str]:
    return (holder.replicas_each, -holder.leaders_each, holder.key)


def _leads_next(holders: Iterable[HolderType]) -> HolderType:
    return min(holders, key=lambda holder: (holder.leaders_each, -holder.replicas_each, holder.key))


def _id(broker: _Holder) -> NodeId:
    assert isinstance(broker.key, int)
    return NodeId(broker.key)
