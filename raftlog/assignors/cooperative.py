"""``cooperative-sticky``: the sticky plan, in two steps, so that members keep reading during a rebalance."""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.assignors.ownership import owners
from raftlog.assignors.sticky import StickyAssignor
from raftlog.assignors.values import Plan, Subscription
from raftlog.types import TopicPartition


class CooperativeStickyAssignor:
    """Kafka's CooperativeStickyAssignor (KIP-429): a partition never has two owners, and few have none.

    A partition that leaves its owner is withheld: no row of this plan has it. Members revoke what they own
    and their rows do not have, and rejoin. The next plan then gives the partitions that were withheld, and
    moves no other one: the rows of this plan are a part of the even plan, so that plan needs no moves, and
    the sticky assignor finds it or one like it. A group whose members and topics stay as they are is
    complete after two generations.
    """

    name = "cooperative-sticky"

    def __init__(self) -> None:
        self._sticky = StickyAssignor()

    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan:
        """A plan, as ``Assignor`` says, without the partitions that members have to revoke first."""
        owner_of = owners(members)

        def may_start(partition: TopicPartition, member: str) -> bool:
            # Also where several members claim it, or the claimant no longer subscribes: it may still read.
            return owner_of.get(partition, member) == member

        plan = self._sticky.assign(members, partition_counts)
        return {
            member: frozenset(each for each in row if may_start(each, member)) for member, row in plan.items()
        }
