"""The arithmetic of majorities."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from raftlog.types import NodeId


class Election(enum.Enum):
    """The outcome of an election so far."""

    WON = 1
    LOST = 2
    OPEN = 3


def quorum_size(voter_count: int) -> int:
    """The number of voters in a majority: any two majorities have a voter in common."""
    return voter_count // 2 + 1


def reached_by_quorum(values: Sequence[int]) -> int:
    """The greatest number that a majority of voters has reached; ``values`` has one number for each voter."""
    return sorted(values)[(len(values) - 1) // 2]


def count_votes(voter_count: int, votes: Mapping[NodeId, bool]) -> Election:
    """The outcome of an election from the votes so far; ``votes`` has the replies of voters only."""
    needed = quorum_size(voter_count)
    granted = sum(votes.values())
    if granted >= needed:
        return Election.WON
    if voter_count - (len(votes) - granted) < needed:
        return Election.LOST
    return Election.OPEN


def election_outcome(halves: Sequence[AbstractSet[NodeId]], votes: Mapping[NodeId, bool]) -> Election:
    """The outcome of an election in which the candidate must win each half of a membership.

    Votes of members that are in neither half do not count.
    """
    outcomes = [
        count_votes(len(half), {voter: granted for voter, granted in votes.items() if voter in half})
        for half in halves
    ]
    if Election.LOST in outcomes:
        return Election.LOST
    return Election.OPEN if Election.OPEN in outcomes else Election.WON
