"""The operation that lists the dependents of a topic, with its body."""

from __future__ import annotations

from raftlog import errors
from raftlog.wire.bodies import Answer
from raftlog.wire.operation import Leader, Operation


class DependentGroup(Answer):
    """A group with members that subscribe to a topic, or with offsets in ``partitions`` of it.

    A queue has ``open_jobs``, and a ``dead_letter_topic`` if there is one.
    """

    group: str
    members: int
    partitions: int
    queue: bool
    open_jobs: int
    dead_letter_topic: str | None


class TopicDependents(Answer):
    """The dependents of a topic: the first 1,000 of ``group_count`` groups by name, and other counts."""

    topic: str
    groups: list[DependentGroup]
    group_count: int
    schedules: int
    delayed: int
    delayed_failed: int


DEPENDENTS = Operation(
    name="topics.dependents",
    request="GET /v1/topics/{topic}/dependents",
    summary="List the dependents of a topic",
    text="Groups and queues with members or offsets, dead-letter topics, schedules and delayed messages.",
    leader=Leader.GROUP,
    answer=TopicDependents,
    success={200: "the dependents"},
    errors=(errors.TopicNotFound,),
)
