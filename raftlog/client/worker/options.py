"""Checks the options of a worker: names, defaults and bounds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Required, Unpack

from raftlog.client.consumer.options import (
    ConsumerOptions,
    DecoderSettings,
    MemberSettings,
    consumer_options,
)
from raftlog.client.messages import Decoder, Decoders
from raftlog.client.options import Duration, milliseconds, positive, positive_seconds
from raftlog.records.failures import retry_topic

Order = Literal["key", "partition", "none"]
ORDERS: Final[tuple[Order, ...]] = ("key", "partition", "none")
CONCURRENCY_MAX: Final = 1000
ATTEMPTS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses before retries of a failed record: ``first``, then each pause twice as long, up to ``max``.

    Each pause is shortened at random, by up to a half. ``attempts`` is the maximum number of calls, including
    the first. Raises ``ValueError`` that names the option.
    """

    first: Duration = "1s"
    max: Duration = field(default="5m", kw_only=True)
    attempts: int = field(default=5, kw_only=True)

    def __post_init__(self) -> None:
        positive_seconds("first", self.first)
        if milliseconds("max", self.max) < milliseconds("first", self.first):
            raise ValueError(f"max is {self.max!r}; it must not be shorter than first, {self.first!r}")
        if positive("attempts", self.attempts) > ATTEMPTS_MAX:
            raise ValueError(f"attempts is {self.attempts}; at most {ATTEMPTS_MAX}")

    @property
    def longest_ms(self) -> int:
        """The longest possible pause in milliseconds; 0 without retries."""
        return self._pause_ms(self.attempts - 1) if self.attempts > 1 else 0

    def pause_ms(self, attempts: int, rng: random.Random) -> int:
        """The pause in milliseconds after ``attempts`` failed attempts, 1 or more."""
        return max(1, round(self._pause_ms(attempts) * rng.uniform(0.5, 1.0)))

    def _pause_ms(self, attempts: int) -> int:
        return min(milliseconds("max", self.max), milliseconds("first", self.first) << min(attempts - 1, 40))


class WorkerSettings(MemberSettings, DecoderSettings, total=False):
    """All options of ``client.worker(topics, ...)``. ``worker_options`` checks them and has the defaults."""

    group: Required[str]
    concurrency: int  # 1: how many calls run at a time
    order: str  # "key": calls of a key are made one at a time, in order; "partition" or "none"
    retry: Backoff | None  # None: ``run`` raises the error; else when a message is tried again
    dead_letter: bool  # False: ``run`` raises the error; True stores a message without further retries
    close_timeout: Duration  # "30s": how long the end waits for calls that have begun


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """A worker's checked options. ``topics`` are the user's topics, without retry topics."""

    topics: tuple[str, ...]
    consumer: ConsumerOptions
    decoders: Decoders
    concurrency: int
    order: Order
    retry: Backoff | None
    dead_letter: bool
    close_timeout_s: float

    @property
    def puts_aside(self) -> bool:
        """Whether the worker has retry topics, for retries or for redriven dead letters."""
        return self.retry is not None or self.dead_letter


def worker_options(
    topics: Sequence[str] | str,
    *,
    group: str,
    concurrency: int = 1,
    order: str = "key",
    retry: Backoff | None = None,
    dead_letter: bool = False,
    close_timeout: Duration = "30s",
    key: Decoder | None = None,
    value: Decoder | None = None,
    **consumer: Unpack[MemberSettings],
) -> WorkerOptions:
    """Check the options. Raises ``ValueError`` and ``TypeError`` that name the option and its choices."""
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; choose {', '.join(map(repr, ORDERS))}")
    if positive("concurrency", concurrency) > CONCURRENCY_MAX:
        raise ValueError(f"concurrency is {concurrency}; at most {CONCURRENCY_MAX}")
    if retry is not None and not isinstance(retry, Backoff):
        raise TypeError(f"retry is {retry!r}; give Backoff('1s', max='5m', attempts=5), or None")
    puts_aside = retry is not None or dead_letter
    if consumer.get("delivery") == "at_most_once" and puts_aside:
        raise ValueError(
            "delivery is 'at_most_once', so a record that fails is lost: leave out retry and dead_letter"
        )
    if consumer.get("delivery") == "exactly_once":
        raise ValueError("delivery is 'exactly_once'; use the batches of client.consumer(...), not a worker")
    again = [retry_topic(name, group) for name in names] if puts_aside else []
    return WorkerOptions(
        topics=names,
        consumer=consumer_options(group, [*names, *again], **consumer),
        decoders=Decoders(key, value),
        concurrency=concurrency,
        order=ORDERS[ORDERS.index(order)],
        retry=retry,
        dead_letter=dead_letter,
        close_timeout_s=positive_seconds("close_timeout", close_timeout),
    )
