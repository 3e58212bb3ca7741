"""The next step of a group's leader towards the voters that it shall have.

Decides: one step at a time, from what is now. Leaves to others: taking it (``reassigner`` for partitions,
``metadata_members`` for the metadata group), making it safe (the Raft core's joint membership), what is
wanted (``metadata.move_planner``, ``metadata.voters``). Pure: the same view gives the same step, on whichever
broker leads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from raftlog.core.membership import Membership
from raftlog.types import Index, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One group as its leader sees it."""

    target: frozenset[NodeId]
    membership: Membership  # in force
    is_committed: bool
    has_committed: bool  # an entry of this leader: no other change can come back
    prepared: frozenset[NodeId]  # brokers that have said that they hold the new replica open
    learner_match: Mapping[NodeId, Index]  # what learners are known to have on their disks
    goal: Index  # the log's end one look ago
    stuck: frozenset[NodeId] = frozenset()  # new replicas without progress, when it is time to report them
    observers: frozenset[NodeId] = frozenset()  # those that shall be learners for good; none is in ``target``


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing now; ``for_what`` names the reason."""

    for_what: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Ask these brokers whether they hold the replica open."""

    nodes: frozenset[NodeId]


@dataclass(frozen=True, slots=True)
class ReportStuck:
    """Ask these brokers why their new replicas make no progress, and tell the active controller."""

    nodes: frozenset[NodeId]


@dataclass(frozen=True, slots=True)
class Change:
    """Make this the membership."""

    membership: Membership


@dataclass(frozen=True, slots=True)
class Report:
    """The target is reached and committed: tell the metadata."""


Step = Wait | Prepare | ReportStuck | Change | Report


def next_step(view: View) -> Step:
    """The step to take now."""
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
    """Whether a majority of these voters is able to commit: their replicas are open and do not rejoin.

    A change that stands in logs cannot be taken back, and a voter that had lost its disk could rejoin by no
    majority any more.
    """
    return 2 * len(membership.voters.intersection(able)) > len(membership.voters)
