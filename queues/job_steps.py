"""Computes the row of a job after each step. Pure; ``work_queue`` decides which steps are allowed."""

from __future__ import annotations

import hashlib
from typing import Final

from msgspec.structs import replace

from queues.records import Job
from queues.requests import Receive

KEY_BYTES: Final = 8  # of a digest


def leased(job: Job, ask: Receive, wall_ms: int) -> Job:
    """The job with one more delivery, under the lease of the receive ``ask``."""
    return replace(
        job,
        state="leased",
        deliveries=job.deliveries + 1,
        lease=ask.lease,
        due_ms=wall_ms + ask.lease_ms,
        term_ms=ask.lease_ms,
        deliveries_max=ask.deliveries_max,
        reason="",
    )


def extended(job: Job, time_ms: int, wall_ms: int) -> Job:
    """The job with a lease that ends ``time_ms`` from now."""
    return replace(job, due_ms=wall_ms + time_ms, term_ms=time_ms)


def given_back(job: Job, time_ms: int, wall_ms: int, reason: str) -> Job:
    """The job after a failed delivery: it waits ``time_ms`` for another delivery.

    The job keeps its lease id, by which repeated requests are recognised.
    """
    return replace(job, state="waiting", due_ms=wall_ms + time_ms, term_ms=time_ms, reason=reason)


def released(job: Job) -> Job:
    """The job waiting for delivery as before its last delivery, which does not count."""
    return replace(job, state="waiting", deliveries=job.deliveries - 1, lease=b"", due_ms=0, term_ms=0)


def redriven(job: Job, redrives: int) -> Job:
    """The job of a former dead letter, waiting for delivery with 0 deliveries."""
    again = released(job)
    return replace(again, deliveries=0, reason="", redrives=redrives)


def dead(job: Job, reason: str) -> Job:
    """The job on its way to the dead-letter topic. It keeps its lease id, to recognise repeated requests."""
    return replace(job, state="dead", due_ms=0, term_ms=0, reason=reason)


def dated(job: Job, *, is_time_known: bool) -> Job:
    """The job, marked as undated if it has a lease or pause while the brokers do not agree on a time."""
    is_undated = job.term_ms > 0 and not is_time_known
    return job if job.is_undated == is_undated else replace(job, is_undated=is_undated)


def key_digest(key: bytes | None) -> bytes:
    """The digest of a record's key; empty for a record without a key."""
    return b"" if key is None else hashlib.blake2b(key, digest_size=KEY_BYTES).digest()
