"""Requests about queues to the coordinator of a group, and its replies. Nothing is decided here.

They travel between brokers as msgpack; a field that is added has a default. Every request may be repeated.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class _Request(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    group: str
    topic: str


class Receive(_Request, tag="receive", frozen=True, kw_only=True):
    """Lease up to ``count_max`` jobs for ``lease_ms``; wait up to ``wait_ms`` for the first one.

    ``lease`` is chosen by the broker that asks. A request with the same one gets the same jobs, as long as it
    holds them. ``topic_id`` tells the topic from an earlier one of the same name. The jobs are the
    records with any of ``tags``, all of ``tags_all`` and none of ``tags_none``.
    """

    topic_id: str
    lease: bytes
    count_max: int
    lease_ms: int
    deliveries_max: int
    wait_ms: int = 0
    is_ordered: bool = False
    client: str = ""  # its address
    tags: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


class Token(msgspec.Struct, frozen=True, array_like=True):
    """The content of a receipt: a job, and the lease under which it was delivered."""

    partition: int
    offset: int
    lease: bytes


class Settle(_Request, tag="settle", frozen=True, kw_only=True):
    """A report of a worker about its jobs.

    ``ack``: it is done. ``nack``: deliver it again after ``time_ms``. ``extend``: the lease ends after
    ``time_ms`` from now. ``dead``: put it into the dead-letter topic. ``release``: it was not delivered after
    all, and this delivery does not count.
    """

    tokens: tuple[Token, ...]
    how: Literal["ack", "nack", "extend", "dead", "release"]
    time_ms: int = 0
    reason: str = ""


class Abandon(_Request, tag="abandon", frozen=True, kw_only=True):
    """The client of a ``Receive`` with this lease has gone: what it was given is released."""

    lease: bytes


class DeadJob(msgspec.Struct, frozen=True, array_like=True):
    """A dead letter that is to be a job again. ``key`` is a digest; ``redrives`` counts this one, too."""

    partition: int
    offset: int
    key: bytes
    redrives: int


class Reopen(_Request, tag="reopen", frozen=True, kw_only=True):
    """Deliver these jobs again. Those that are open already stay as they are.

    The three lists are those of the queue whose jobs they are.
    """

    topic_id: str
    jobs: tuple[DeadJob, ...]
    tags: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


class ReadQueue(_Request, tag="read_queue", frozen=True, kw_only=True):
    """Read the progress of a queue, and its open jobs as numbers."""


class DeleteQueue(_Request, tag="delete_queue", frozen=True, kw_only=True):
    """Forget which jobs are open. The committed offsets stay, below which every job is done."""


QueueRequest = Receive | Settle | Abandon | Reopen | ReadQueue | DeleteQueue


class Delivered(msgspec.Struct, frozen=True, array_like=True):
    """One job in the hands of the caller until ``until_ms`` of the coordinator's wall clock."""

    partition: int
    offset: int
    deliveries: int
    until_ms: int


class Received(msgspec.Struct, frozen=True, array_like=True, tag="received"):
    """Jobs, by partition and offset; none when the time was over."""

    jobs: tuple[Delivered, ...] = ()


class Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled", kw_only=True):
    """``lost`` has the places of the tokens whose lease is over. ``until_ms`` is the end of an extension."""

    lost: tuple[int, ...] = ()
    until_ms: int = 0


class PartView(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One partition. From ``next_offset`` on no job was delivered; below ``start_offset`` all are done."""

    partition: int
    start_offset: int
    next_offset: int
    leased: int
    waiting: int
    dead: int


class QueueView(msgspec.Struct, frozen=True, array_like=True, tag="queue_view", kw_only=True):
    """A queue. Its jobs are the records that the three lists select."""

    topic_id: str
    is_ordered: bool
    parts: tuple[PartView, ...]
    receivers: int  # that wait for jobs
    tags: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


QueueReply = Received | Settled | QueueView
