"""Checks that a request has no visible effect, ever, if its error promised that it was not carried out.

Decides: which errors promise that a request had no effect. Leaves to others: which effect a request has, and
where the effect becomes visible (the checkers of groups, jobs and messages).
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
    """Attempts to send requests, counted by the requested effect: a request may be sent several times.

    Each visible effect must belong to at least one attempt whose error did not promise that it had no effect.
    """

    def __init__(self, invariant: str) -> None:
        self._invariant = invariant
        self._may_be_done: Counter[Effect] = Counter()
        self._refusals: dict[Effect, RaftlogError] = {}  # the newest of each effect
        self._seen: dict[Effect, tuple[Effect, ...]] = {}  # with the others that it may be in place of

    def sends(self, effect: Effect) -> None:
        """Note an attempt before any broker can know of it."""
        self._may_be_done[effect] += 1

    def refused(self, effect: Effect, error: RaftlogError) -> None:
        """Note an attempt that was answered with an error.

        Raises ``Broken`` if the requested effect is visible although all attempts were refused.
        """
        if may_be_done(error):
            return
        self._may_be_done[effect] -= 1
        self._refusals[effect] = error
        if effect in self._seen:
            self._check(self._seen[effect])

    def seen(self, *effects: Effect) -> None:
        """Note that one of these effects is visible. Raises ``Broken`` if all attempts for all of them were
        refused.
        """
        self._seen |= dict.fromkeys(effects, effects)
        self._check(effects)

    def _check(self, effects: tuple[Effect, ...]) -> None:
        if not any(self._may_be_done[effect] > 0 for effect in effects):
            refusals = [self._refusals.get(effect) for effect in effects]
            raise Broken(self._invariant, f"{effects} is visible; all its requests were refused: {refusals}")
