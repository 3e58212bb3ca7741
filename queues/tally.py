"""Counters of jobs for metrics. After a failed append some jobs may count twice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Counters of the queues of one partition of ``__offsets``."""

    jobs_delivered: int = 0
    jobs_redelivered: int = 0  # deliveries of jobs that were delivered before
    jobs_done: int = 0
    jobs_dead: int = 0
    leases_expired: int = 0
