"""Rows of queues in the topic ``__offsets``: the format that readers of the topic rely on.

All internal topics share the encoding (``raftlog.hosting.keyed_records``); ``groups.records`` has the other
rows of the topic.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class QueueKey(msgspec.Struct, frozen=True, array_like=True, tag="queue"):
    """Key of the row of one partition of a topic that a group uses as a queue."""

    group: str
    topic: str
    partition: int


class JobKey(msgspec.Struct, frozen=True, array_like=True, tag="job"):
    """Key of the row of one open job of a queue.

    Slots are reused, so that the number of keys stays bounded.
    """

    group: str
    topic: str
    slot: int


class Queue(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The progress of a queue in one partition. A job below ``next_offset`` that has no row is done.

    Records that the queue's tags do not select are not jobs.
    """

    topic_id: str
    next_offset: int
    is_ordered: bool = False  # by key; equal in all partitions of the queue, and so are the tags
    used_ms: int = 0  # approximate time of the last receive
    tags: tuple[str, ...] = ()  # jobs have any of ``tags``, all of ``tags_all`` and none of ``tags_none``
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


class Job(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A job that is not done.

    ``leased``: a worker has the job until ``due_ms`` of the wall clock. ``waiting``: the job may be delivered
    from ``due_ms`` on. ``dead``: the job goes to the dead-letter topic. ``term_ms`` is the length of the
    lease or pause. ``is_undated``: the brokers did not agree on a time when ``due_ms`` was computed, so later
    leaders ignore ``due_ms``.
    """

    partition: int
    offset: int
    state: Literal["leased", "waiting", "dead"] = "leased"
    deliveries: int = 0
    lease: bytes = b""  # of the newest delivery
    due_ms: int = 0
    term_ms: int = 0
    is_undated: bool = False
    deliveries_max: int = 0
    key: bytes = b""  # a digest; only in ordered queues
    reason: str = ""  # why the newest delivery failed
    redrives: int = 0  # number of times that it was redriven from the dead-letter topic
