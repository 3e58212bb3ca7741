"""Assertions of the core: what may happen passes, and the nearest thing that must not happen raises."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftlog.core import invariants
from raftlog.core.membership import Membership
from raftlog.errors import InvariantViolated
from raftlog.types import Index, NodeId, Term

ONE, TWO, THREE, FOUR = (NodeId(number) for number in (1, 2, 3, 4))
SIMPLE = Membership(frozenset({ONE, TWO, THREE}))
OTHER = Membership(frozenset({ONE, TWO, FOUR}))
JOINT = SIMPLE.enter_joint(OTHER)


def change(before: Membership, after: Membership, *, committed: int = 5) -> Callable[[], None]:
    return lambda: invariants.require_safe_change(before, Index(5), Index(committed), after)


@pytest.mark.parametrize(
    "check",
    [
        lambda: invariants.require_one_vote(Term(1), None, TWO),
        lambda: invariants.require_one_vote(Term(1), TWO, TWO),
        lambda: invariants.require_elected(Term(1), ONE, ONE, is_durable=True),
        lambda: invariants.require_durable_in_log(Index(3), Index(3)),
        lambda: invariants.require_nothing_open(Index(3), [Index(3)], writes_finished=True),
        change(SIMPLE, JOINT),
        change(JOINT, OTHER),
        change(SIMPLE, Membership(SIMPLE.voters, frozenset({FOUR}))),
    ],
)
def test_what_may_happen_passes(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize(
    "check",
    [
        lambda: invariants.require_one_vote(Term(1), TWO, THREE),
        lambda: invariants.require_elected(Term(1), ONE, TWO, is_durable=True),
        lambda: invariants.require_elected(Term(1), ONE, ONE, is_durable=False),
        lambda: invariants.require_durable_in_log(Index(4), Index(3)),
        lambda: invariants.require_nothing_open(Index(3), [Index(2)], writes_finished=True),
        lambda: invariants.require_nothing_open(Index(3), [Index(3)], writes_finished=False),
        change(SIMPLE, OTHER),
        change(SIMPLE, JOINT, committed=4),
    ],
)
def test_what_must_not_happen_raises(check: Callable[[], None]) -> None:
    with pytest.raises(InvariantViolated):
        check()
