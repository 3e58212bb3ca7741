"""``sticky``: an even plan that leaves as many partitions as possible with their owners.

``cooperative-sticky`` makes the ``sticky`` plan in two generations, so that members keep reading during a
rebalance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from raftlog.assignors.balance import Member, Pool, share
from raftlog.assignors.ownership import owners
from raftlog.assignors.values import Plan, Subscription, in_order, subscribers
from raftlog.types import TopicPartition


class StickyAssignor:
    """Kafka's StickyAssignor (KIP-54), with the least number of moves.

    An even plan has precedence: with equal subscriptions, no member has two partitions more than another.
    With different subscriptions, no chain of moves makes the plan more even. Of all such plans, the fewest
    partitions leave their owners: exactly the fewest, where Kafka uses a heuristic.
    """

    name = "sticky"

    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan:
        """Return a plan, as ``Assignor.assign`` specifies."""
        owner_of = owners(members)
        pools = _pools(members, partition_counts, owner_of)
        share([pool for pool, _ in pools])
        rows: dict[str, list[TopicPartition]] = {name: [] for name in members}
        for pool, partitions in pools:
            _name(pool, partitions, owner_of, rows)
        return {name: frozenset(row) for name, row in rows.items()}


class CooperativeStickyAssignor:
    """Kafka's CooperativeStickyAssignor (KIP-429): a partition never has two owners, and few have none.

    A partition that leaves its owner is withheld: no row of this plan has it. Members revoke the partitions
    that they own and that their rows lack, and rejoin. The next plan then gives the withheld partitions, and
    moves no other partition: the rows of this plan are a part of the even plan, so that plan needs no moves,
    and the sticky assignor finds it or an equivalent plan. A group whose members and topics do not change is
    complete after two generations.
    """

    name = "cooperative-sticky"

    def __init__(self) -> None:
        self._sticky = StickyAssignor()

    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan:
        """Return a plan, as ``Assignor.assign`` specifies, without the partitions that members must first
        revoke.
        """
        owner_of = owners(members)

        def may_start(partition: TopicPartition, member: str) -> bool:
            # False also if several members claim it, or its owner no longer subscribes: they may still read.
            return owner_of.get(partition, member) == member

        plan = self._sticky.assign(members, partition_counts)
        return {
            member: frozenset(each for each in row if may_start(each, member)) for member, row in plan.items()
        }


def _pools(
    members: Mapping[str, Subscription],
    partition_counts: Mapping[str, int],
    owner_of: Mapping[TopicPartition, str | None],
) -> list[tuple[Pool, list[TopicPartition]]]:
    """The partitions, grouped by the members that may have them, as pools.

    A member's claim to a partition of a topic without its subscription does not count.
    """
    by_name = {name: Member(name) for name in in_order(members)}
    topics_of: dict[tuple[str, ...], list[str]] = {}
    for topic, names in subscribers(members, partition_counts).items():
        topics_of.setdefault(names, []).append(topic)
    found = []
    for names, topics in topics_of.items():
        partitions = [
            TopicPartition(topic, number) for topic in topics for number in range(partition_counts[topic])
        ]
        entitled = {name: by_name[name] for name in names}
        owned = Counter(
            entitled[owner]
            for each in partitions
            if (owner := owner_of.get(each)) is not None and owner in entitled
        )
        found.append((Pool(len(partitions), [*entitled.values()], owned), partitions))
    return found


def _name(
    pool: Pool,
    partitions: Sequence[TopicPartition],
    owner_of: Mapping[TopicPartition, str | None],
    rows: dict[str, list[TopicPartition]],
) -> None:
    """Turn the counts of a pool into rows of named partitions.

    Owners keep their first partitions; the other partitions go to the members in turn.
    """
    wanted = {member.name: count for member, count in pool.given.items()}
    free = []
    for partition in partitions:
        owner = owner_of.get(partition)
        if owner is not None and wanted.get(owner):
            wanted[owner] -= 1
            rows[owner].append(partition)
        else:
            free.append(partition)
    turns = sorted(
        (len(rows[name]) + nth, place, name)
        for place, (name, count) in enumerate(wanted.items())
        for nth in range(count)
    )
    for partition, (_, _, name) in zip(free, turns, strict=True):
        rows[name].append(partition)
