"""Assignors: the rules by which members of a consumer group share partitions.

Decides: the plan of one generation, from the subscriptions of all members and the partition counts of their
topics. Leaves to others: who is a member, when a generation begins, and who makes the plan. Pure: the leader
of a group runs an assignor in its client; a broker runs an equal assignor if the server makes the plan.

Read ``values`` first: subscriptions and plans. ``registry`` has the assignors by name, and the assignors that
use subscriptions only. The assignors of ``sticky`` also use the partitions that members own; ``balance`` has
their arithmetic, ``ownership`` finds the owner of a partition. ``plan`` checks plans that were made
elsewhere.
"""

from raftlog.assignors.plan import problem_of
from raftlog.assignors.registry import ASSIGNORS, assignor
from raftlog.assignors.values import Assignor, Plan, Subscription

__all__ = ["ASSIGNORS", "Assignor", "Plan", "Subscription", "assignor", "problem_of"]
