"""The random parameters of clients over HTTP and of their network."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from verification.simulator.odds import AWAY, MOVES, STALE_METADATA, Odds


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
    """The parameters of HTTP in one run. ``raw`` names the kinds of clients that do not use a
    client library.
    """

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
        """Draw the parameters; None for runs without HTTP."""
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


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, HttpOdds]:
    """Draw a run without administrators, with clients over HTTP in place of most other clients.

    The cluster is smaller than in other runs and has fewer kinds of faults. Segments are not of the smallest
    size, because the clients write much.
    """
    while (http := HttpOdds.drawn(rng)) is None:
        pass
    moves = (*MOVES, STALE_METADATA) if MOVES[0] in cluster.timed else ()
    away = (AWAY,) if AWAY in cluster.timed else ()
    brokers = cluster.brokers if moves else 3
    cluster = replace(
        cluster,
        administrators=0,
        recovers=False,
        brokers=brokers,
        rates=cluster.rates[:brokers],
        timed=(*cluster.timed[:2], *moves, *away),
        faults_s=min(cluster.faults_s, 6.0),
        partitions=2,
        producers=1,
        consumers=min(cluster.consumers, 1),
        segment_bytes=cluster.segment_bytes
        if cluster.retention_bytes >= 0
        else max(cluster.segment_bytes, 16_384),
        churns_topics=False,
        uses_create_times=cluster.uses_create_times or not http.is_append_time,
    )
    return cluster, http
