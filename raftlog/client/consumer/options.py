"""Checks the options of a consumer: names, defaults and bounds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypedDict, TypeVar

from raftlog.assignors import ASSIGNORS
from raftlog.assignors.values import Assignor
from raftlog.client.delivery import Delivery, checked
from raftlog.client.messages import Decoder, Decoders
from raftlog.client.options import (
    Duration,
    TagSettings,
    milliseconds,
    positive,
    positive_seconds,
    reader_preset,
    seconds,
)
from raftlog.records.tags import TagSelection
from raftlog.types import TopicPartition
from raftlog.wire.tags import checked_selection

Reset = Literal["earliest", "latest", "fail"]
TopicNames = Sequence[str] | str | re.Pattern[str]
"""Names of topics, or a pattern that must match a whole name."""
Choice = TypeVar("Choice", bound=str)
Missing = Literal["wait", "raise"]
MISSING: Final[tuple[Missing, ...]] = ("wait", "raise")
RESETS: Final[tuple[Reset, ...]] = ("earliest", "latest", "fail")
TRANSACTIONAL_ID_MAX: Final = 249


class DecoderSettings(TypedDict, total=False):
    """Functions that decode records; they run on the thread of the client's event loop."""

    key: Decoder | None  # None: keys are bytes; else a function of bytes, such as ``bytes.decode``
    value: Decoder | None  # None: values are bytes; else a function of bytes, such as ``json.loads``


class MemberSettings(TagSettings, total=False):
    """Options of consumers and workers. ``consumer_options`` checks them and has the defaults."""

    topics_refresh: Duration  # "30s": interval of looks for topics that match a pattern
    missing: str  # "wait": waits for topics that do not exist; "raise" is an error
    delivery: str  # "at_least_once": or "at_most_once", and for a consumer "exactly_once"
    reset: str  # "earliest": position of a partition without a committed offset; "latest" or "fail"
    strategies: Sequence[str | Assignor]  # ["range"]: all members need one in common
    member_id: str | None  # None: chosen at random
    instance_id: str | None  # None: no static member
    session_timeout: Duration  # "10s": a member that is silent for longer loses its partitions
    rebalance_timeout: Duration  # "60s": how long a rebalance waits for this member
    commit_interval: Duration | None  # None: "1s"; how often acknowledged messages are committed
    preset: str | None  # None: none; "latency" and "throughput" have other defaults of the next three
    linger: Duration | None  # None: 0, or of the preset; a wait at the end of a partition for more records
    limit: int | None  # None: 500, or of the preset; how many records are handed out at once
    prefetch_bytes: int | None  # None: 8 MiB, or of the preset; how many bytes are read ahead


class ConsumerSettings(MemberSettings, DecoderSettings, total=False):
    """All options of ``client.consumer(group, topics, ...)``."""

    assign: Iterable[tuple[str, int]] | None  # None: see topics; else partitions, read without membership
    transaction_timeout: Duration | None  # None: "60s"; of a batch, with "exactly_once"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """A consumer's checked options. ``assignors`` has the client's own strategies, by name.

    Without a ``selection`` all records are read. Without a ``group`` nothing is committed. With ``assigned``
    partitions, which the user chose, there is no membership.
    """

    group: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    assigned: frozenset[TopicPartition]
    topics_refresh_s: float
    missing: Missing
    delivery: Delivery
    reset: Reset
    strategies: tuple[str, ...]
    assignors: dict[str, Assignor]
    member_id: str | None
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    commit_interval_s: float
    linger_s: float
    limit: int
    prefetch_bytes: int
    transaction_timeout: Duration
    selection: TagSelection | None
    decoders: Decoders

    @property
    def is_exactly_once(self) -> bool:
        """Whether offsets are committed in transactions only."""
        return self.delivery is Delivery.EXACTLY_ONCE


def consumer_options(
    group: str | None,
    topics: TopicNames = (),
    *,
    assign: Iterable[tuple[str, int]] | None = None,
    topics_refresh: Duration = "30s",
    missing: str = "wait",
    delivery: str = "at_least_once",
    reset: str = "earliest",
    strategies: Sequence[str | Assignor] = ("range",),
    member_id: str | None = None,
    instance_id: str | None = None,
    session_timeout: Duration = "10s",
    rebalance_timeout: Duration = "60s",
    commit_interval: Duration | None = None,
    preset: str | None = None,
    linger: Duration | None = None,
    limit: int | None = None,
    prefetch_bytes: int | None = None,
    transaction_timeout: Duration | None = None,
    tags: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    tags_none: Sequence[str] | None = None,
    key: Decoder | None = None,
    value: Decoder | None = None,
) -> ConsumerOptions:
    """Check the options. Raises ``ValueError`` and ``TypeError`` that name the option and its choices."""
    names, pattern = _subscription(topics)
    assigned = _assigned(assign, topics, names or pattern)
    how = checked(delivery)
    _check_delivery(how, group, is_assigned=bool(assigned))
    _check_contradictions(how, commit_interval, transaction_timeout)
    own = {each.name: each for each in strategies if not isinstance(each, str)}
    every = "1s" if commit_interval is None else commit_interval
    base = reader_preset(preset, linger=linger, limit=limit, prefetch_bytes=prefetch_bytes)
    return ConsumerOptions(
        group=group or "",
        topics=names,
        pattern=pattern,
        assigned=assigned,
        missing=_chosen("missing", missing, MISSING),
        topics_refresh_s=positive_seconds("topics_refresh", topics_refresh),
        delivery=how,
        reset=_chosen("reset", reset, RESETS),
        strategies=_names_of(strategies, own),
        assignors=own,
        member_id=member_id,
        instance_id=instance_id,
        session_timeout_ms=milliseconds("session_timeout", session_timeout),
        rebalance_timeout_ms=milliseconds("rebalance_timeout", rebalance_timeout),
        commit_interval_s=positive_seconds("commit_interval", every),
        linger_s=seconds("linger", base.linger),
        limit=positive("limit", base.limit),
        prefetch_bytes=positive("prefetch_bytes", base.prefetch_bytes),
        transaction_timeout="60s" if transaction_timeout is None else transaction_timeout,
        selection=checked_selection(tags, tags_all, tags_none),
        decoders=Decoders(key, value),
    )


def _chosen(name: str, text: str, choices: tuple[Choice, ...]) -> Choice:
    for choice in choices:
        if choice == text:
            return choice
    raise ValueError(f"{name} is {text!r}; choose {', '.join(map(repr, choices))}")


def transactional_id_of(group: str, member: str) -> str:
    """The transactional id of a group member.

    Names of groups and members have no ``~``, so no two members share an id.
    """
    made = f"{group}~consumer~{member}"
    if len(made) <= TRANSACTIONAL_ID_MAX:
        return made
    return f"{group[:128]}~consumer~{hashlib.sha256(made.encode()).hexdigest()}"


def _check_delivery(delivery: Delivery, group: str | None, *, is_assigned: bool) -> None:
    if not group and (not is_assigned or delivery is not Delivery.AT_LEAST_ONCE):
        raise ValueError("group is missing; only assign with delivery='at_least_once' needs no group")
    if is_assigned and delivery is Delivery.EXACTLY_ONCE:
        raise ValueError("assign: exactly_once needs a group, which fences former members; give topics")


def _check_contradictions(
    delivery: Delivery, commit_interval: Duration | None, transaction_timeout: Duration | None
) -> None:
    if delivery is not Delivery.EXACTLY_ONCE and transaction_timeout is not None:
        raise ValueError(f"delivery is {str(delivery)!r} and transaction_timeout is given; leave one out")
    if transaction_timeout is not None:
        positive_seconds("transaction_timeout", transaction_timeout)
    if delivery is Delivery.EXACTLY_ONCE and commit_interval is not None:
        raise ValueError("delivery is 'exactly_once', which commits with each batch; omit commit_interval")


def _names_of(strategies: Sequence[str | Assignor], own: dict[str, Assignor]) -> tuple[str, ...]:
    words = tuple(each if isinstance(each, str) else each.name for each in strategies)
    if words and all(name in ASSIGNORS or name in own for name in words):
        return words
    known = ", ".join(map(repr, ASSIGNORS))
    raise ValueError(f"strategies is {strategies!r}; choose {known}, or give an object with name and assign")


def _assigned(
    assign: Iterable[tuple[str, int]] | None, topics: TopicNames, subscription: object
) -> frozenset[TopicPartition]:
    """The partitions of ``assign``. Raises ``ValueError`` unless either topics or partitions are given."""
    assigned = frozenset(TopicPartition(*each) for each in assign or ())
    if bool(assigned) == bool(subscription):
        raise ValueError(
            f"topics is {topics!r} and assign is {assign!r}; give either the topics of a group, or "
            "partitions such as assign=[('orders', 0)]"
        )
    return assigned


def _subscription(topics: TopicNames) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    if isinstance(topics, re.Pattern):
        if not isinstance(topics.pattern, str):
            raise TypeError(f"topics is {topics!r}; give a pattern of text")
        return (), topics
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"topics is {topics!r}; give their names as text")
    if not all(names):
        raise ValueError(f"topics is {topics!r}; a name must not be empty")
    return names, None
