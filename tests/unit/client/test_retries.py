"""How long a client waits before it tries again."""

from __future__ import annotations

import random

from raftlog.client.retries import ELECTION_ATTEMPTS, ELECTION_MAX_S, FIRST_S, MAX_S, pause_s
from raftlog.errors import ConnectionLost, NoLeader, NotLeader, Overloaded, RaftlogError


def longest(error: RaftlogError, attempts: int) -> float:
    rng = random.Random(1)
    return max(pause_s(error, attempts, rng) for _ in range(1_000))


def test_pauses_are_drawn_below_a_bound_that_doubles() -> None:
    rng = random.Random(1)
    for attempts in range(1, 20):
        bound = min(MAX_S, FIRST_S * 2**attempts)
        pauses = [pause_s(ConnectionLost(), attempts, rng) for _ in range(200)]
        assert 0 <= min(pauses) < bound / 4
        assert bound * 3 / 4 < max(pauses) <= bound
    assert pause_s(None, 1, rng) == 0


# requirement: ST5
def test_an_election_is_looked_at_often_but_not_for_ever() -> None:
    for attempts in range(1, ELECTION_ATTEMPTS + 1):
        assert longest(NoLeader(), attempts) <= ELECTION_MAX_S
    assert longest(NoLeader(), ELECTION_ATTEMPTS + 1) > 5 * ELECTION_MAX_S


def test_a_leader_that_is_named_is_asked_at_once() -> None:
    named = NotLeader(leader_http="http://127.0.0.1:1")
    assert (longest(named, 1), longest(named, 2)) == (0.0, 0.0)
    assert longest(named, 3) > 0.0


def test_a_broker_says_when_to_return() -> None:
    assert 0.2 <= pause_s(Overloaded(retry_after_ms=200), 1, random.Random(1)) <= 0.3
