"""Chooses the next step of a group's leader towards the target voters.

Decides: one step at a time, from the current state. Leaves to others: taking the step (``reassigner`` for
partitions, ``metadata_members`` for the metadata group), safety (the Raft core's joint membership), the
target (``metadata.move_planner``, ``metadata.voters``). Pure: equal views give equal steps on any leader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from raftlog.core.membership import Membership
from raftlog.types import Index, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """State of one group as its leader sees it."""

    target: frozenset[NodeId]
    membership: Membership  # in force
    is_committed: bool
    has_committed: bool  # whether this leader has committed an entry: no earlier change can reappear
    prepared: frozenset[NodeId]  # brokers that have answered that they hold the new replica open
    learner_match: Mapping[NodeId, Index]  # match index of each learner
    goal: Index  # last index of the log at the previous look
    stuck: frozenset[NodeId] = frozenset()  # new replicas without progress, when a report is due
    observers: frozenset[NodeId] = frozenset()  # members that stay learners; disjoint from ``target``


@dataclass(frozen=True, slots=True)
class Wait:
    """Take no step now; ``for_what`` is the missing condition."""

    for_what: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Ask these brokers whether they have the replica open."""

    nodes: frozenset[NodeId]


@dataclass(frozen=True, slots=True)
class ReportStuck:
    """Ask these brokers why their new replicas make no progress, and report the reasons to the active
    controller.
    """

    nodes: frozenset[NodeId]


@dataclass(frozen=True, slots=True)
class Change:
    """Change the group's membership to this membership."""

    membership: Membership


@dataclass(frozen=True, slots=True)
class Report:
    """Report to the metadata that the voters are the target, by a committed membership."""


Step = Wait | Prepare | ReportStuck | Change | Report


def next_step(view: View) -> Step:
    """Choose the step that the leader takes now."""
    membership = view.membership
    if not view.is_committed or membership.is_joint:
        return Wait("the change under way to be committed")
    voters, learners = membership.voters, membership.learners
    strangers = (view.target | view.observers) - voters - learners
    wanted = learners & (view.target | view.observers)
    arriving = strangers & view.prepared
    if arriving or wanted != learners:
        return Change(Membership(voters, wanted | arriving))
    if voters == view.target:
        if strangers:
            return Prepare(strangers)
        return Report() if view.has_committed else Change(membership)
    if view.stuck:
        return ReportStuck(view.stuck)
    new = view.target - voters
    if new <= learners and all(view.learner_match.get(node, -1) >= view.goal for node in new):
        return Change(Membership(view.target, membership.members & view.observers))
    return Prepare(strangers) if strangers else Wait("learners to catch up")


def can_commit(membership: Membership, able: Collection[NodeId]) -> bool:
    """Whether a majority of the voters is in ``able``, the brokers whose replicas are open and not rejoining.

    A change in the log cannot be undone. Without such a majority, voters that lost their disks could never
    rejoin.
    """
    return 2 * len(membership.voters.intersection(able)) > len(membership.voters)
