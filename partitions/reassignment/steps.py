"""The next step of a partition's leader towards the voters that the metadata names as target.

Decides: one step at a time, from what is now. Leaves to others: taking it (``reassigner``), making it safe
(the Raft core's joint membership), what is wanted (``metadata.move_planner``). Pure: the same view gives
the same step, on whichever broker leads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raftlog.core.membership import Membership
from raftlog.types import Index, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One partition as its leader sees it."""

    target: frozenset[NodeId]
    membership: Membership  # in force
    is_committed: bool
    has_committed: bool  # an entry of this leader: no other change can come back
    prepared: frozenset[NodeId]  # brokers that have said that they hold the new replica open
    learner_match: Mapping[NodeId, Index]  # what learners are known to have on their disks
    goal: Index  # the log's end one look ago
    stuck: frozenset[NodeId] = frozenset()  # new replicas without progress, when it is time to report them


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now: ``for_what`` says why."""

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
    if voters == view.target:
        return Report() if view.has_committed and not learners else Change(Membership(voters))
    strangers = view.target - voters - learners
    wanted = learners & view.target
    arriving = strangers & view.prepared
    if arriving or wanted != learners:
        return Change(Membership(voters, wanted | arriving))
    if view.stuck:
        return ReportStuck(view.stuck)
    if strangers:
        return Prepare(strangers)
    if all(view.learner_match.get(node, -1) >= view.goal for node in wanted):
        return Change(Membership(view.target))
    return Wait("learners to catch up")
