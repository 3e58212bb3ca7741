"""Requests about queues to the coordinator of a group, and its replies.

Brokers send requests and replies to each other as msgpack, so a new field needs a default. Every request may
be repeated.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class _Request(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    group: str
    topic: str


class Receive(_Request, tag="receive", frozen=True, kw_only=True):
    """Lease up to ``count_max`` jobs for ``lease_ms``; wait up to ``wait_ms`` for the first job.

    The asking broker chooses ``lease``. A repeated request with an equal ``lease`` gets the jobs that the
    lease still holds. ``topic_id`` distinguishes the topic from an earlier topic with an equal name. The jobs
    are the records with any of ``tags``, all of ``tags_all`` and none of ``tags_none``.
    """

    topic_id: str
    lease: bytes
    count_max: int
    lease_ms: int
    deliveries_max: int
    wait_ms: int = 0
    is_ordered: bool = False
    client: str = ""  # address of the client
    tags: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


class Token(msgspec.Struct, frozen=True, array_like=True):
    """The content of a receipt: a job, and the lease under which it was delivered."""

    partition: int
    offset: int
    lease: bytes


class Settle(_Request, tag="settle", frozen=True, kw_only=True):
    """Report the result of a worker's jobs, given by their tokens.

    ``ack``: the job is done. ``nack``: deliver the job again after ``time_ms``. ``extend``: the lease ends
    ``time_ms`` from now. ``dead``: store the job in the dead-letter topic. ``release``: the job did not reach
    the worker, and this delivery does not count.
    """

    tokens: tuple[Token, ...]
    how: Literal["ack", "nack", "extend", "dead", "release"]
    time_ms: int = 0
    reason: str = ""


class Abandon(_Request, tag="abandon", frozen=True, kw_only=True):
    """Release the jobs of a ``Receive`` with this lease, because its client has gone."""

    lease: bytes


class DeadJob(msgspec.Struct, frozen=True, array_like=True):
    """A dead letter to redrive. ``key`` is a digest; ``redrives`` includes this redrive."""

    partition: int
    offset: int
    key: bytes
    redrives: int


class Reopen(_Request, tag="reopen", frozen=True, kw_only=True):
    """Deliver these dead letters again as jobs; open jobs stay unchanged.

    The three lists of tags must equal the lists of the queue.
    """

    topic_id: str
    jobs: tuple[DeadJob, ...]
    tags: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


class ReadQueue(_Request, tag="read_queue", frozen=True, kw_only=True):
    """Read the progress of a queue, and the numbers of its open jobs."""


class DeleteQueue(_Request, tag="delete_queue", frozen=True, kw_only=True):
    """Delete a queue with its open jobs. The committed offsets, below which all jobs are done, stay."""


QueueRequest = Receive | Settle | Abandon | Reopen | ReadQueue | DeleteQueue


class Delivered(msgspec.Struct, frozen=True, array_like=True):
    """One job leased to the caller until ``until_ms`` of the coordinator's wall clock."""

    partition: int
    offset: int
    deliveries: int
    until_ms: int


class Received(msgspec.Struct, frozen=True, array_like=True, tag="received"):
    """The leased jobs, sorted by partition and offset; empty if no job was available in time."""

    jobs: tuple[Delivered, ...] = ()


class Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled", kw_only=True):
    """Result of a ``Settle``. ``lost`` has the indexes of the tokens whose lease has ended.

    ``until_ms`` is the new end of the leases after an ``extend``.
    """

    lost: tuple[int, ...] = ()
    until_ms: int = 0


class PartView(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The progress and the numbers of open jobs in one partition.

    Jobs below ``start_offset`` are done. No job from ``next_offset`` on was delivered.
    """

    partition: int
    start_offset: int
    next_offset: int
    leased: int
    waiting: int
    dead: int


class QueueView(msgspec.Struct, frozen=True, array_like=True, tag="queue_view", kw_only=True):
    """State of a queue. The queue's jobs are the records that the three lists of tags select."""

    topic_id: str
    is_ordered: bool
    parts: tuple[PartView, ...]
    receivers: int  # receives that wait for jobs
    tags: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


QueueReply = Received | Settled | QueueView
