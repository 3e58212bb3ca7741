"""The random parameters of clients over HTTP and of their network."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOdds:
    """The random parameters of the network between clients and brokers."""

    latency_s: float
    jitter_s: float
    cut_odds: float  # of a piece that is split
    reset_odds: float  # of a piece whose connection breaks
    stall_odds: float  # of a piece that is lost and retransmitted, which delays later ones
    window_bytes: int  # between two programs; bytes beyond it wait at the sender


CALM_STREAMS: Final = StreamOdds(
    latency_s=0.0005, jitter_s=0.0, cut_odds=0.0, reset_odds=0.0, stall_odds=0.0, window_bytes=64 << 10
)


SHARE: Final = 0.4  # of the runs of whole brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOdds:
    """One run's parameters. ``raw`` are the kinds of clients that write HTTP themselves."""

    streams: StreamOdds
    producers: int  # of raftlog.client
    readers: int
    raw: tuple[str, ...]
    think_s: float
    trouble_s: float  # between two faults of hosts: silence, or broken connections
    heartbeat_ms: int  # of event streams
    is_append_time: bool

    @classmethod
    def drawn(cls, rng: random.Random) -> HttpOdds | None:
        """None for runs without HTTP."""
        if rng.random() >= SHARE:
            return None
        return cls(
            streams=StreamOdds(
                latency_s=rng.choice((0.0005, 0.003)),
                jitter_s=rng.choice((0.0, 0.02, 0.2)),
                cut_odds=rng.choice((0.0, 0.1, 0.5)),
                reset_odds=rng.choice((0.0, 0.01, 0.05)),
                stall_odds=rng.choice((0.0, 0.01, 0.05)),
                window_bytes=rng.choice((64 << 10, 64 << 10, 1200)),
            ),
            producers=rng.choice((1, 2, 3)),
            readers=rng.choice((1, 1, 2)),
            raw=tuple(rng.sample(RAW_KINDS, rng.choice((2, 2, 3)))),
            think_s=rng.choice((0.01, 0.03, 0.1)),
            trouble_s=rng.choice((0.3, 1.0, 1000.0)),
            heartbeat_ms=rng.choice((200, 1000)),
            is_append_time=rng.random() < 0.5,
        )


RAW_KINDS: Final = ("json producer", "json reader", "event reader", "burst producer")
