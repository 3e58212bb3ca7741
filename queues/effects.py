"""The effects that a queue requests: read ahead in a topic, store dead letters. Nothing is decided here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from raftlog.hosting.decisions import Effect
from raftlog.records.tags import TagSelection


@dataclass(frozen=True, slots=True)
class Look(Effect):
    """Find the jobs of a partition from ``offset`` on, then report them. Wait up to ``wait_ms`` for one.

    ``with_keys``: their order depends on the keys. Records without the tags of ``selection`` are no jobs.
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
    """Store a job in the dead-letter topic, until that is done, then report it."""

    group: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    deliveries: int
    reason: str
    redrives: int = 0


class Found(NamedTuple):
    """A job that nobody has had yet. ``key`` is a digest, and empty for a record without one.

    With a ``problem`` it stands for the rest of a batch that cannot be read as records.
    """

    offset: int
    key: bytes = b""
    problem: str = ""


class Looked(NamedTuple):
    """The result of a look. Behind ``next_offset`` nothing was looked at.

    ``offset`` is where it began: another one than asked for, if the log does not have that one any more.
    ``is_at_end``: behind ``next_offset`` there was nothing.
    """

    offset: int
    next_offset: int
    found: tuple[Found, ...] = ()
    is_at_end: bool = False
