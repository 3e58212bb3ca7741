"""Which step comes next, from every state that a move can be in."""

from __future__ import annotations

import itertools

import pytest

from partitions.reassignment.reassigner import STUCK_AFTER_S, Patience
from partitions.reassignment.steps import (
    Change,
    Prepare,
    Report,
    ReportStuck,
    Step,
    View,
    Wait,
    can_commit,
    next_step,
)
from raftlog.core.membership import Membership
from raftlog.types import Index, NodeId


def group(*numbers: int) -> frozenset[NodeId]:
    return frozenset(NodeId(number) for number in numbers)


def members(
    voters: tuple[int, ...], learners: tuple[int, ...] = (), outgoing: tuple[int, ...] = ()
) -> Membership:
    return Membership(group(*voters), group(*learners), group(*outgoing))


def view(
    target: tuple[int, ...],
    membership: Membership,
    *,
    is_committed: bool = True,
    has_committed: bool = True,
    prepared: tuple[int, ...] = (),
    stuck: tuple[int, ...] = (),
    observers: tuple[int, ...] = (),
    goal: int = 100,
    **matches: int,
) -> View:
    return View(
        target=group(*target),
        membership=membership,
        is_committed=is_committed,
        has_committed=has_committed,
        prepared=group(*prepared),
        learner_match={NodeId(int(name[1:])): Index(match) for name, match in matches.items()},
        goal=Index(goal),
        stuck=group(*stuck),
        observers=group(*observers),
    )


OLD, NEW = (1, 2, 3), (2, 3, 4)


# requirement: F2
@pytest.mark.parametrize(
    ("seen", "step"),
    [
        (view(NEW, members(OLD)), Prepare(group(4))),
        (view(NEW, members(OLD), prepared=(4,)), Change(members(OLD, (4,)))),
        (view(NEW, members(OLD), stuck=(4,)), ReportStuck(group(4))),
        (view((3, 4, 5), members(OLD), prepared=(4,), stuck=(5,)), Change(members(OLD, (4,)))),
        (view(NEW, members(OLD, (4,)), n4=99, stuck=(4,)), ReportStuck(group(4))),
        (view(NEW, members(OLD, (4,)), prepared=(4,), n4=99), Wait("learners to catch up")),
        (view(NEW, members(OLD, (4,))), Wait("learners to catch up")),
        (view(NEW, members(OLD, (4,)), n4=100), Change(members(NEW))),
        (view(NEW, members(NEW)), Report()),
        # A replica may hold a change of an earlier leader: only an entry of this leader rules that out.
        (view(NEW, members(NEW), has_committed=False), Change(members(NEW))),
        # Only what is committed and simple is built upon.
        (
            view(NEW, members(OLD, (4,)), is_committed=False, n4=100),
            Wait("the change under way to be committed"),
        ),
        (view(NEW, members(NEW, (), OLD), n4=100), Wait("the change under way to be committed")),
        (view(NEW, members(NEW), is_committed=False), Wait("the change under way to be committed")),
        # Some are there and some are not.
        (view((3, 4, 5), members(OLD), prepared=(4,)), Change(members(OLD, (4,)))),
        (view((3, 4, 5), members(OLD, (4,)), n4=100), Prepare(group(5))),
        (view((3, 4, 5), members(OLD, (4, 5)), n4=100, n5=3), Wait("learners to catch up")),
        # Called off, or another target meanwhile.
        (view(OLD, members(OLD, (4,)), n4=100), Change(members(OLD))),
        (view((1, 2, 5), members(OLD, (4,))), Change(members(OLD))),
        (view((1, 2, 5), members(OLD, (4,)), prepared=(5,)), Change(members(OLD, (5,)))),
        (view(OLD, members(OLD)), Report()),
        # Fewer need nobody to learn.
        (view((2,), members(OLD)), Change(members((2,)))),
        # Observers become learners as they come, and stay.
        (view(OLD, members(OLD), observers=(4, 5)), Prepare(group(4, 5))),
        (view(OLD, members(OLD), observers=(4, 5), prepared=(4,)), Change(members(OLD, (4,)))),
        (view(OLD, members(OLD, (4,)), observers=(4, 5)), Prepare(group(5))),
        (view(OLD, members(OLD, (4,)), observers=(4,)), Report()),
        # A voter that leaves becomes a learner; one that is down, and never was a member, holds up nothing.
        (view(NEW, members(OLD, (4,)), observers=(1,), n4=100), Change(members(NEW, (1,)))),
        (view(NEW, members(OLD, (4, 6)), observers=(1, 6), n4=100, n6=0), Change(members(NEW, (1, 6)))),
        (view(NEW, members(OLD, (4,)), observers=(1, 5), n4=100), Change(members(NEW, (1,)))),
        (view(NEW, members(OLD, (4,)), observers=(1, 5), n4=99), Prepare(group(5))),
        (view((2, 3), members(OLD, (4,)), observers=(1, 4), n4=0), Change(members((2, 3), (1, 4)))),
    ],
)
def test_the_next_step_follows_from_what_is_now(seen: View, step: Step) -> None:
    assert next_step(seen) == step


def carried_out(membership: Membership, step: Step, prepared: frozenset[NodeId]) -> Membership:
    """What the core makes of a step once it is committed; a stranger must not become a voter."""
    if not isinstance(step, Change):
        return membership
    added = step.membership.voters - membership.voters
    assert added <= membership.learners, "a newcomer is a learner first"
    assert step.membership.learners - membership.members <= prepared, "and prepared before that"
    return step.membership


# requirement: F2
def test_every_move_arrives_and_no_newcomer_votes_before_it_has_learned() -> None:
    rows = [row for size in (1, 2, 3) for row in itertools.combinations(range(1, 6), size)]
    for old, new in itertools.product(rows, rows):
        membership, prepared = members(old), group()
        for _ in range(8):
            matches = {f"n{node}": 100 for node in membership.learners}
            seen = view(new, membership, prepared=tuple(prepared), **matches)
            step = next_step(seen)
            if isinstance(step, Report):
                break
            if isinstance(step, Prepare):
                prepared |= step.nodes
            membership = carried_out(membership, step, prepared)
        assert membership == members(new), (old, new)


# requirement: F2, F3
def test_every_broker_that_does_not_vote_ends_as_a_learner_also_while_some_are_down() -> None:
    rows = [row for size in (1, 2, 3) for row in itertools.combinations(range(1, 6), size)]
    brokers = group(1, 2, 3, 4, 5)
    for old, new, down in itertools.product(rows, rows, (0, 4)):
        membership, prepared = members(old), group()
        if down in new or down in old:
            continue
        observers = tuple(brokers - group(*new))
        for _ in range(10):
            matches = {f"n{node}": 100 for node in membership.learners}
            step = next_step(view(new, membership, prepared=tuple(prepared), observers=observers, **matches))
            if isinstance(step, Prepare):
                prepared |= step.nodes - {down}
            membership = carried_out(membership, step, prepared)
        assert membership == Membership(group(*new), group(*observers) - {down}), (old, new, down)


def test_a_change_needs_a_majority_of_the_new_voters_that_counts() -> None:
    assert can_commit(members((1, 2, 3)), {NodeId(1), NodeId(3)})
    assert not can_commit(members((1, 2, 3)), {NodeId(1), NodeId(4), NodeId(5)})
    assert not can_commit(members((1, 2)), {NodeId(1)})


# requirement: F1
def test_a_replica_is_stuck_after_a_time_without_progress() -> None:
    patience, four, five = Patience(), NodeId(4), NodeId(5)
    assert patience.stuck(100.0, {four: None, five: None}) == group()
    assert patience.stuck(100.0 + STUCK_AFTER_S - 0.1, {four: None, five: Index(0)}) == group()
    assert patience.stuck(100.0 + STUCK_AFTER_S, {four: None, five: Index(0)}) == group(4)
    assert patience.stuck(101.0 + STUCK_AFTER_S, {five: Index(0)}) == group()
    assert patience.stuck(102.0 + STUCK_AFTER_S, {four: None}) == group(), "its waiting time began again"
