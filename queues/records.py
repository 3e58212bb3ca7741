"""The rows of queues among the records of the topic ``__offsets``: the contract with its readers.

Their encoding is that of all internal topics (``raftlog.hosting.keyed_records``); ``groups.records`` has the
other rows.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class QueueKey(msgspec.Struct, frozen=True, array_like=True, tag="queue"):
    """One partition of a topic that a group works off as a queue."""

    group: str
    topic: str
    partition: int


class JobKey(msgspec.Struct, frozen=True, array_like=True, tag="job"):
    """One open job of a queue. Slots are used again, so that keys do not become more and more."""

    group: str
    topic: str
    slot: int


class Queue(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The progress of a queue in one partition. A job below ``next_offset`` without a row is done.

    Records that the tags do not select are no jobs.
    """

    topic_id: str
    next_offset: int
    is_ordered: bool = False  # by key; the same in all partitions, and so are the tags
    used_ms: int = 0  # about when jobs were received
    tags: tuple[str, ...] = ()  # of its jobs: any of these, all and none of the others
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


class Job(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A job that is not done.

    ``leased``: a worker has it until ``due_ms`` of the wall clock. ``waiting``: it may be delivered from
    ``due_ms`` on. ``dead``: it goes to the dead-letter topic. ``term_ms`` is the whole length of that time.
    ``is_undated``: brokers agreed on no time when ``due_ms`` was computed; the next leader ignores it.
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
    key: bytes = b""  # a digest; only in queues that are ordered
    reason: str = ""  # why the newest delivery failed
    redrives: int = 0  # how often it was a dead letter that was to be tried again
