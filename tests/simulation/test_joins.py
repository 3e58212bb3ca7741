"""Brokers join among other faults, and the checks of that see what they are for."""

from __future__ import annotations

import pytest

from raftlog.core.membership import Membership
from raftlog.types import NodeId
from verification.simulator.levels import Seed
from verification.simulator.memberships import share_majorities
from verification.simulator.scenarios.joining.odds import JOIN, REMOVE


def members(voters: tuple[int, ...], outgoing: tuple[int, ...] = ()) -> Membership:
    return Membership(frozenset(map(NodeId, voters)), outgoing=frozenset(map(NodeId, outgoing)))


# requirement: F2 F3
@pytest.mark.parametrize("number", [26, 32])
def test_brokers_join_and_are_removed_for_good_while_others_fail(number: int) -> None:
    result = Seed("brokers-joining", number).run()
    assert result.violations == ()
    assert min(result.faults[kind] for kind in (JOIN, REMOVE, "removed")) > 0


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (members((1, 2, 3)), members((1, 2, 3)), True),
        (members((1, 2, 3)), members((1, 2, 3, 4)), True),
        (members((1, 2, 3)), members((1, 2)), True),
        (members((1, 2, 3)), members((1, 2, 4)), False),  # {1, 3} and {2, 4}
        (members((1, 2, 3)), members((1, 2, 3, 4, 5)), False),
        (members((1, 2, 3)), members((3, 4, 5)), False),
        (members((1,)), members((2,)), False),
        (members((1, 2, 3)), members((3, 4, 5), (1, 2, 3)), True),
        (members((3, 4, 5), (1, 2, 3)), members((3, 4, 5)), True),
        (members((3, 4, 5), (1, 2, 3)), members((6, 7, 8)), False),
    ],
)
def test_which_memberships_may_follow_one_another(
    one: Membership, other: Membership, *, expected: bool
) -> None:
    assert share_majorities(one, other) is expected
    assert share_majorities(other, one) is expected
