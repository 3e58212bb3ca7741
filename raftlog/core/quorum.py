"""The arithmetic of majorities, kept apart so that a slow obvious twin can be put beside it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from raftlog.types import NodeId


class Election(enum.Enum):
    """How a count of votes stands."""

    WON = 1
    LOST = 2
    OPEN = 3


def quorum_size(voter_count: int) -> int:
    """The smallest number of voters of which any two sets of that size share one."""
    return voter_count // 2 + 1


def reached_by_quorum(values: Sequence[int]) -> int:
    """The greatest number that a quorum has reached; ``values`` holds each voter's own."""
    return sorted(values)[(len(values) - 1) // 2]


def count_votes(voter_count: int, votes: Mapping[NodeId, bool]) -> Election:
    """The outcome so far; ``votes`` holds the answers of voters only."""
    needed = quorum_size(voter_count)
    granted = sum(votes.values())
    if granted >= needed:
        return Election.WON
    if voter_count - (len(votes) - granted) < needed:
        return Election.LOST
    return Election.OPEN


def election_outcome(halves: Sequence[AbstractSet[NodeId]], votes: Mapping[NodeId, bool]) -> Election:
    """The outcome where every half of a membership must be won; votes of others do not count."""
    outcomes = [
        count_votes(len(half), {voter: granted for voter, granted in votes.items() if voter in half})
        for half in halves
    ]
    if Election.LOST in outcomes:
        return Election.LOST
    return Election.OPEN if Election.OPEN in outcomes else Election.WON
