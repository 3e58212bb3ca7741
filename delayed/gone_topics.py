"""Ends messages and schedules of deleted topics: they fail at once, and are deleted within a minute.

The coordinator asks the controller which topics were deleted, periodically and when its broker learns of a
deletion. Messages and schedules of deleted topics fail with a reason; after ``SWEEP_MS`` they are deleted. A
schedule has the id of its topic, so a topic that is created again does not keep earlier schedules. Messages
are found by the topic's name. So if a message is sent to a topic that was created again, messages of the
earlier topic stay, and fail when they are due. A message that a schedule fires does not prevent the deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from delayed.draft import IDLE_MS, Draft
from delayed.records import ChangeKey, Outcome, Row
from delayed.scheduling import Scheduling
from delayed.values import SweepTopics, TopicKey

SWEEP_MS: Final = 20_000  # interval of the questions, and minimum time for which a reason can be read
DROPPED_MAX: Final = 400  # messages of one step, which with their changes fit into one batch of records
PAUSE_MS: Final = 10  # after such a step, to append its records


class GoneTopics:
    """The deleted topics that one partition of ``__delayed`` knows, in one leader epoch."""

    def __init__(self, draft: Draft, is_moving: Callable[[bytes], bool], schedules: Scheduling) -> None:
        self._draft = draft
        self._schedules = schedules
        self._is_moving = is_moving
        self._sweep_ms = draft.now_ms + SWEEP_MS
        self._asked: set[TopicKey] = set()  # topics that the controller is asked about
        self._seen = dict[TopicKey, int]()  # deleted topics of the last answer, and since when
        self._failing: dict[str, bytes] = {}  # by topic name: the id up to which its messages have failed
        self._leaving: dict[str, bytes] = {}  # by topic name: the id up to which its messages were deleted
        self._rests_until_ms = draft.now_ms

    def deadline_ms(self) -> int:
        """The time in milliseconds at which ``collect`` must be called at the latest."""
        if self._failing or self._leaving:
            return self._rests_until_ms
        state = self._draft.state
        return self._sweep_ms if len(state.waiting) or state.schedules else self._draft.now_ms + IDLE_MS

    def collect(self) -> None:
        """Ask the controller about all topics if that is due, and end some messages of deleted topics."""
        now_ms = self._draft.now_ms
        if now_ms >= self._sweep_ms:
            self.look()
        if now_ms >= self._rests_until_ms and (self._failing or self._leaving):
            self._end_some()
            self._rests_until_ms = now_ms + PAUSE_MS

    def look(self) -> None:
        """Ask the controller now which topics of messages and schedules were deleted."""
        self._sweep_ms = self._draft.now_ms + SWEEP_MS
        state = self._draft.state
        self._asked = {TopicKey(topic) for _, (topic, _) in state.waiting.targets}
        self._asked.update(TopicKey(each.topic, each.topic_id) for each in state.schedules.values())
        if self._asked:
            self._draft.perform(SweepTopics(frozenset(self._asked)))

    def added(self, topic: str) -> None:
        """Keep the messages of a topic, because a message was accepted after the controller was asked."""
        self._asked.discard(TopicKey(topic))
        self._seen.pop(TopicKey(topic), None)
        self._failing.pop(topic, None)
        self._leaving.pop(topic, None)

    def gone(self, topics: Iterable[TopicKey]) -> None:
        """End messages and schedules of ``topics``, which did not exist after the controller was asked."""
        now_ms = self._draft.now_ms
        self._seen = {topic: self._seen.get(topic, now_ms) for topic in self._asked.intersection(topics)}
        for topic, since_ms in self._seen.items():
            is_over = now_ms - since_ms >= SWEEP_MS
            if topic.topic_id and is_over:
                self._schedules.drop_of(topic)
            elif topic.topic_id:
                self._schedules.fail_of(topic, _reason(topic.name))
            elif is_over:
                self._leaving.setdefault(topic.name, b"")
            else:
                self._failing.setdefault(topic.name, b"")

    def _end_some(self) -> None:
        work, end = (self._failing, self._fail) if self._failing else (self._leaving, self._drop)
        topic, after = next(iter(work.items()))
        ids = self._draft.state.waiting.behind(after, topic, DROPPED_MAX)
        self._draft.write(*end(topic, [id_ for id_ in ids if not self._is_moving(id_)]))
        if len(ids) < DROPPED_MAX:
            del work[topic]
        else:
            work[topic] = ids[-1]

    def _fail(self, topic: str, ids: list[bytes]) -> list[Row]:
        failed, change = self._draft.state.failed, self._draft.change_of
        return [Row(ChangeKey(id_), change(id_, failed=_reason(topic))) for id_ in ids if id_ not in failed]

    def _drop(self, topic: str, ids: list[bytes]) -> list[Row]:
        return [row for id_ in ids for row in self._draft.leaving(id_, Outcome.CANCELLED)]


def _reason(topic: str) -> str:
    return f"the topic {topic} was deleted"
