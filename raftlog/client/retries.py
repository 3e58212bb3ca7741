"""How long to wait before the same is tried again.

Full jitter: a time chosen evenly between nothing and a bound that doubles, so that clients which were
thrown out together do not come back together. A broker that says when to come back is believed.
"""

from __future__ import annotations

import random

from raftlog.errors import NotLeader, OutOfOrderSequence, Overloaded, QuotaExceeded, RaftlogError

FIRST_S = 0.02
MAX_S = 0.5


def pause_s(error: RaftlogError | None, attempts: int, rng: random.Random) -> float:
    """Seconds to wait after ``attempts`` attempts of which the last ended with this error."""
    if error is None or isinstance(error, OutOfOrderSequence):
        return 0.0  # it failed only because of another one
    if isinstance(error, NotLeader) and error.details.get("leader_http") and attempts <= 2:
        return 0.0  # the answer named the broker to ask
    asked_ms = error.details.get("retry_after_ms")
    if isinstance(error, Overloaded | QuotaExceeded) and isinstance(asked_ms, int):
        return asked_ms / 1_000 * rng.uniform(1.0, 1.5)
    return rng.uniform(0.0, min(MAX_S, FIRST_S * 2.0 ** min(attempts, 10)))
