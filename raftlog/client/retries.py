"""Computes the pause before a retry.

Full jitter: a random time below a bound that doubles, so that clients which were disconnected together do not
reconnect together. ``retry_after_ms`` of a broker takes precedence, up to a minute: a broker whose quota is
used up may name the time at which state expires, but an operator may make room earlier. An election is over
soon, so while there is no leader the bound stays low for about a second.
"""

from __future__ import annotations

import random

from raftlog.errors import NoLeader, NotLeader, OutOfOrderSequence, Overloaded, QuotaExceeded, RaftlogError

FIRST_S = 0.02
MAX_S = 0.5
ELECTION_MAX_S = 0.08  # while there is no leader
ELECTION_ATTEMPTS = 20
ASKED_MAX_S = 60.0  # longer waits that brokers ask for are cut


def pause_s(error: RaftlogError | None, attempts: int, rng: random.Random) -> float:
    """The seconds to wait after ``attempts`` attempts, the last of which raised ``error``."""
    if error is None or isinstance(error, OutOfOrderSequence):
        return 0.0  # the batch failed only because of another batch
    if isinstance(error, NotLeader) and error.details.get("leader_http") and attempts <= 2:
        return 0.0  # the response named the leader
    asked_ms = error.details.get("retry_after_ms")
    if isinstance(error, Overloaded | QuotaExceeded) and isinstance(asked_ms, int):
        return min(asked_ms / 1_000, ASKED_MAX_S) * rng.uniform(1.0, 1.5)
    is_election = isinstance(error, NoLeader) and attempts <= ELECTION_ATTEMPTS
    bound_s = ELECTION_MAX_S if is_election else MAX_S
    return rng.uniform(0.0, min(bound_s, FIRST_S * 2.0 ** min(attempts, 10)))
