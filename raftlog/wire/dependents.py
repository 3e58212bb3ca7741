"""The body of a response: what depends on a topic."""

from __future__ import annotations

from raftlog import errors
from raftlog.wire.bodies import Answer
from raftlog.wire.operation import Leader, Operation


class DependentGroup(Answer):
    """A group that has members which subscribe to a topic, or offsets in ``partitions`` of it.

    A queue has ``open_jobs``, and a ``dead_letter_topic`` if there is one.
    """

    group: str
    members: int
    partitions: int
    queue: bool
    open_jobs: int
    dead_letter_topic: str | None


class TopicDependents(Answer):
    """The dependents of a topic: of ``group_count`` groups the first 1,000 by name, and other counts."""

    topic: str
    groups: list[DependentGroup]
    group_count: int
    schedules: int
    delayed: int
    delayed_failed: int


DEPENDENTS = Operation(
    name="topics.dependents",
    request="GET /v1/topics/{topic}/dependents",
    summary="What depends on a topic",
    text="Groups and queues with members or offsets, dead-letter topics, schedules and delayed messages.",
    leader=Leader.GROUP,
    answer=TopicDependents,
    success={200: "what depends on the topic"},
    errors=(errors.TopicNotFound,),
)
