"""Counters of one coordinator for its metrics. Nothing is decided here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Counters of one partition of ``__delayed`` since its replica was opened here."""

    delivered: int = 0
    failed: int = 0
    retries: int = 0
