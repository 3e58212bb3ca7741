"""Options of a consumer: names, defaults and bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from raftlog.assignors import ASSIGNORS
from raftlog.assignors.values import Assignor
from raftlog.client.options import Duration, milliseconds, positive, positive_seconds

Delivery = Literal["at_least_once", "at_most_once"]
Reset = Literal["earliest", "latest"]
DELIVERIES: Final = ("at_least_once", "at_most_once")
RESETS: Final = ("earliest", "latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """A consumer's checked options. ``assignors`` has the client's own strategies, by name."""

    group: str
    topics: tuple[str, ...]
    delivery: Delivery
    reset: Reset
    strategies: tuple[str, ...]
    assignors: dict[str, Assignor]
    member_id: str | None
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    commit_interval_s: float
    max_records: int
    prefetch_bytes: int


def consumer_options(
    group: str,
    topics: Sequence[str] | str,
    *,
    delivery: str = "at_least_once",
    reset: str = "earliest",
    strategies: Sequence[str | Assignor] = ("range",),
    member_id: str | None = None,
    instance_id: str | None = None,
    session_timeout: Duration = "10s",
    rebalance_timeout: Duration = "60s",
    commit_interval: Duration = "1s",
    max_records: int = 500,
    prefetch_bytes: int = 8 << 20,
) -> ConsumerOptions:
    """Check the options. Raises ``ValueError`` and ``TypeError`` that name the option and its choices."""
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not all(names) or not names:
        raise ValueError(f"topics is {topics!r}; name at least one topic")
    if delivery not in DELIVERIES:
        raise ValueError(f"delivery is {delivery!r}; choose {' or '.join(map(repr, DELIVERIES))}")
    if reset not in RESETS:
        raise ValueError(f"reset is {reset!r}; choose {' or '.join(map(repr, RESETS))}")
    own = {each.name: each for each in strategies if not isinstance(each, str)}
    words = tuple(each if isinstance(each, str) else each.name for each in strategies)
    unknown = [name for name in words if name not in ASSIGNORS and name not in own]
    if unknown or not words:
        known = ", ".join(map(repr, ASSIGNORS))
        raise ValueError(
            f"strategies is {strategies!r}; choose {known}, or give an object with name and assign"
        )
    return ConsumerOptions(
        group=group,
        topics=names,
        delivery="at_most_once" if delivery == "at_most_once" else "at_least_once",
        reset="latest" if reset == "latest" else "earliest",
        strategies=words,
        assignors=own,
        member_id=member_id,
        instance_id=instance_id,
        session_timeout_ms=milliseconds("session_timeout", session_timeout),
        rebalance_timeout_ms=milliseconds("rebalance_timeout", rebalance_timeout),
        commit_interval_s=positive_seconds("commit_interval", commit_interval),
        max_records=positive("max_records", max_records),
        prefetch_bytes=positive("prefetch_bytes", prefetch_bytes),
    )
