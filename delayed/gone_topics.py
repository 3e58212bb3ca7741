"""Messages and schedules whose topic was deleted leave, so that they take no room until their time comes.

The coordinator asks the controller which topics are gone. Those that are gone twice in succession lose
their messages and schedules, so that the reason of a failed one can be read for a while. A topic for which
somebody sends a message or a schedule meanwhile was created again: what is left of the earlier one stays, and
fails when it is due. That a schedule fires proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from delayed.draft import IDLE_MS, Draft
from delayed.records import Outcome
from delayed.values import SweepTopics

SWEEP_MS: Final = 20_000  # a deleted topic is noticed within twice this time
DROPPED_MAX: Final = 400  # at a time: with their changes they are one batch of records
PAUSE_MS: Final = 10  # after so many, in which they are appended


class GoneTopics:
    """The deleted topics of one partition of ``__delayed``, in one epoch of its leader."""

    def __init__(
        self, draft: Draft, is_moving: Callable[[bytes], bool], drop_schedules: Callable[[str], None]
    ) -> None:
        self._draft = draft
        self._drop_schedules = drop_schedules
        self._is_moving = is_moving
        self._sweep_ms = draft.now_ms + SWEEP_MS
        self._asked: set[str] = set()  # topics that the controller is asked about
        self._seen: set[str] = set()  # those that were gone when it was asked the last time
        self._gone: dict[str, bytes] = {}  # and the id up to which their messages have left
        self._rests_until_ms = draft.now_ms

    def deadline_ms(self) -> int:
        """When ``collect`` has something to do."""
        if self._gone:
            return self._rests_until_ms
        state = self._draft.state
        return self._sweep_ms if len(state.waiting) or state.schedules else self._draft.now_ms + IDLE_MS

    def collect(self) -> None:
        """Ask about all topics once in a while, and drop some messages of those that are gone."""
        now_ms = self._draft.now_ms
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + SWEEP_MS
            state = self._draft.state
            self._asked = {topic for _, (topic, _) in state.waiting.targets}
            self._asked.update(each.topic for each in state.schedules.values())
            if self._asked:
                self._draft.want(SweepTopics(frozenset(self._asked)))
        if self._gone and now_ms >= self._rests_until_ms:
            self._drop_some(*next(iter(self._gone.items())))
            self._rests_until_ms = now_ms + PAUSE_MS

    def added(self, topic: str) -> None:
        """The topic has a message or a schedule that was accepted after the controller was asked."""
        self._asked.discard(topic)
        self._seen.discard(topic)
        self._gone.pop(topic, None)

    def gone(self, topics: Iterable[str]) -> None:
        """The controller did not know these topics at a time after it was asked."""
        gone = self._asked.intersection(topics)
        self._gone.update(dict.fromkeys(gone & self._seen, b""))
        self._seen = gone

    def _drop_some(self, topic: str, after: bytes) -> None:
        self._drop_schedules(topic)
        ids = self._draft.state.waiting.behind(after, topic, DROPPED_MAX)
        rows = [self._draft.leaving(id_, Outcome.CANCELLED) for id_ in ids if not self._is_moving(id_)]
        self._draft.write(*(row for some in rows for row in some))
        if len(ids) < DROPPED_MAX:
            del self._gone[topic]
        else:
            self._gone[topic] = ids[-1]
