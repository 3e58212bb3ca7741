"""Effects that a queue requests: reading ahead in a topic, and storing dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from raftlog.hosting.decisions import Effect
from raftlog.records.tags import TagSelection


@dataclass(frozen=True, slots=True)
class Look(Effect):
    """Find the jobs of a partition from ``offset`` on, then report them. Wait up to ``wait_ms`` for a job.

    ``with_keys`` is True if the queue is ordered by key. Records that ``selection`` does not select are not
    jobs.
    """

    group: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    wait_ms: int
    with_keys: bool
    selection: TagSelection | None = None


@dataclass(frozen=True, slots=True)
class Bury(Effect):
    """Store a job in the dead-letter topic, with retries until this succeeds, then report the success."""

    group: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    deliveries: int
    reason: str
    redrives: int = 0


class Found(NamedTuple):
    """A job that was not delivered yet. ``key`` is a digest of the record's key; empty without a key.

    If ``problem`` is set, the job represents the rest of a batch that cannot be decoded.
    """

    offset: int
    key: bytes = b""
    problem: str = ""


class Looked(NamedTuple):
    """The result of a look, which examined the records below ``next_offset``.

    ``offset`` is the first examined offset; it is above the requested offset if that record has been deleted.
    ``is_at_end`` means that there were no records from ``next_offset`` on.
    """

    offset: int
    next_offset: int
    found: tuple[Found, ...] = ()
    is_at_end: bool = False
