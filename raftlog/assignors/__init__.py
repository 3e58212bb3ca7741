"""Assignors: which member of a consumer group reads which partitions.

Decides: the plan of one generation, from the subscriptions of all members and the partition counts of their
topics. Leaves to others: who is a member, when a generation begins, and who makes the plan. Pure: the leader
of a group runs an assignor in the client, a broker runs the same one when the plan is made by the server.

Read ``values`` first: subscriptions and plans. ``registry`` has the assignors by name, and those that look at
the subscriptions only. The assignors of ``sticky`` also look at what members own; ``balance`` is their
arithmetic, ``ownership`` says who owns a partition. ``plan`` checks plans that were made elsewhere.
"""

from raftlog.assignors.plan import problem_of
from raftlog.assignors.registry import ASSIGNORS, assignor
from raftlog.assignors.values import Assignor, Plan, Subscription

__all__ = ["ASSIGNORS", "Assignor", "Plan", "Subscription", "assignor", "problem_of"]
