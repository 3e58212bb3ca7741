"""Requests that were refused as not done: none of them may ever have a visible effect.

Decides: which errors promise that a request had no effect. Leaves to others: which effect a request has, and
where it becomes visible (the checkers of the levels).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

from raftlog.errors import RaftlogError
from verification.simulator.result import Broken

Effect = TypeVar("Effect", bound=Hashable)


def may_be_done(error: RaftlogError) -> bool:
    """Return whether a request that was answered with this error may have an effect."""
    return not error.is_definite and error.details.get("sent") is not False


class Attempts(Generic[Effect]):
    """Requests, counted by the effect that they request: each request may be sent several times.

    A visible effect is one of a request that was not refused as not done.
    """

    def __init__(self, invariant: str) -> None:
        self._invariant = invariant
        self._may_be_done: Counter[Effect] = Counter()
        self._refusals: dict[Effect, RaftlogError] = {}  # the newest of each effect
        self._seen: dict[Effect, tuple[Effect, ...]] = {}  # with the others that it may be in place of

    def sends(self, effect: Effect) -> None:
        """Note a request before any broker can know of it."""
        self._may_be_done[effect] += 1

    def refused(self, effect: Effect, error: RaftlogError) -> None:
        """Note a request that was answered with an error.

        Raises ``Broken`` if its effect is visible all the same.
        """
        if may_be_done(error):
            return
        self._may_be_done[effect] -= 1
        self._refusals[effect] = error
        if effect in self._seen:
            self._check(self._seen[effect])

    def seen(self, *effects: Effect) -> None:
        """Note effects of which one is visible. Raises ``Broken`` if all their requests were refused."""
        self._seen |= dict.fromkeys(effects, effects)
        self._check(effects)

    def _check(self, effects: tuple[Effect, ...]) -> None:
        if not any(self._may_be_done[effect] > 0 for effect in effects):
            refusals = [self._refusals.get(effect) for effect in effects]
            raise Broken(self._invariant, f"{effects} is visible; all its requests were refused: {refusals}")
