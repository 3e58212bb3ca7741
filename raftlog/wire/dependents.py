"""The operation that lists the dependents of a topic, with its body."""

from __future__ import annotations

from raftlog import errors
from raftlog.wire.bodies import Answer
from raftlog.wire.operation import Leader, Operation


class DependentGroup(Answer):
    """A group with members that subscribe to a topic, or with committed offsets in ``partitions`` of it.

    If the group is a queue, ``open_jobs`` is the number of its open jobs. ``dead_letter_topic`` is the name
    of the group's dead-letter topic, if that topic exists.
    """

    group: str
    members: int
    partitions: int
    queue: bool
    open_jobs: int
    dead_letter_topic: str | None


class TopicDependents(Answer):
    """The dependents of a topic. ``groups`` has the first 1,000 of ``group_count`` groups, by name."""

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
