"""The memberships of a log, and what follows from them for an entry."""

from __future__ import annotations

import pytest

from raftlog.core.membership import MembershipEntry, Memberships
from raftlog.types import Index
from tests.helpers.raft_member import members


# requirement: RP8
@pytest.mark.parametrize(("index", "quorum"), [(2, 1), (5, 1), (9, 1), (10, 1), (19, 1), (20, 2), (29, 2)])
def test_as_many_hold_a_committed_entry_as_any_majority_since_then(index: int, quorum: int) -> None:
    log = Memberships(
        Index(4),
        members(1, 2, 3, 4, 5),
        [
            MembershipEntry(Index(10), members(1)),
            MembershipEntry(Index(20), members(1, 2, 3)),
            MembershipEntry(Index(30), members(1, 2, 3, 4, 5)),
        ],
    )
    assert log.quorum_since(Index(index)) == quorum


def test_the_newest_majority_holds_what_is_committed_now() -> None:
    log = Memberships(Index(4), members(1), [MembershipEntry(Index(10), members(1, 2, 3, 4, 5))])
    assert [log.quorum_since(Index(index)) for index in (3, 9, 10, 11)] == [1, 1, 3, 3]
