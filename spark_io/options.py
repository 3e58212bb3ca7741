"""Checks the options of the format: their names, defaults and values.

Decides: which options there are, and what a value means. Leaves to others: the existing partitions and
offsets (``positions``, ``discovery``).

An option with an unknown name is refused: if a misspelt option were ignored, other data would be read or
written than the user asked for. No message shows the value of an option that is unknown or may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from raftlog.client.options import (
    Duration,
    ProducerSettings,
    broker_urls,
    positive_seconds,
    producer_options,
)
from raftlog.client.reader_place import ReaderPlace, reader_place
from spark_io.errors import InvalidOption
from spark_io.positions import Positions, Subscription, ending, starting, subscription

if TYPE_CHECKING:
    from raftlog.client.partition import Isolation

Value = TypeVar("Value")
Delivery = Literal["exactly_once", "at_least_once"]

SERVERS: Final = "bootstrap.servers"
_ALIASES: Final = {"kafka.bootstrap.servers": SERVERS, "kafka.client.rack": "rack", "client.rack": "rack"}
_COMMON: Final = (SERVERS, "fetchTimeout")
_READ: Final = (
    *_COMMON,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "isolation",
    "rack",
    "maxStaleness",
    "minPartitions",
    "maxPartitions",
    "maxRecordsPerPartition",
)
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "archive")
_STREAM_ONLY: Final = (
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "groupId",
)
_NO_GROUPS: Final = {
    name.lower(): f"{name}: a read joins no consumer group; groupId shows the progress of a stream to tools"
    for name in ("groupIdPrefix", "kafka.group.id", "group.id")
}
_WRITE: Final = (
    *_COMMON,
    "topic",
    "delivery",
    "acks",
    "compression",
    "transactionTimeout",
    "stagedTimeout",
    "commitTimeout",
    "linger",
    "batch.bytes",
)
_TRANSACTIONAL: Final = (
    "transactionTimeout",
    "stagedTimeout",
    "sinkId",
    "sinkTakeover",
    "txnAppId",
    "txnVersion",
)
_WRITE_STREAM_ONLY: Final = ("sinkId", "sinkTakeover")
_WRITE_BATCH_ONLY: Final = ("txnAppId", "txnVersion")
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})  # Spark adds them to the options of a sink
_SECRET: Final = re.compile(r"password|secret|token|credential", re.IGNORECASE)
_USER: Final = re.compile(r"//[^/@,]*@")
_APP_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,180}")
_SEQUENCE_MAX: Final = (1 << 53) - 1
_LINGER: Final = "100ms"  # no code waits for single rows, and a task ends with a flush


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds on the number of Spark partitions and on the size of a trigger. None for no bound."""

    min_partitions: int | None
    max_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The checked options of a source."""

    servers: tuple[str, ...]
    fetch_timeout_s: float
    topics: Subscription
    starting: Positions
    ending: Positions
    fail_on_data_loss: bool
    include_headers: bool
    isolation: Isolation
    limits: Limits
    group_id: str | None
    place: ReaderPlace | None = None
    archive: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The checked options of a sink. ``version`` belongs to ``app_id``; both are for batch writes.

    ``producer`` has the options of the tasks' producers. ``sink_id`` is for streams; without it the id of the
    query identifies the sink.
    """

    servers: tuple[str, ...]
    topic: str | None
    delivery: Delivery
    producer: ProducerSettings
    staged_timeout: Duration
    commit_timeout_s: float
    app_id: str | None
    version: int
    sink_id: str | None
    takes_over: bool


class Given:
    """The options as Spark passes them: names in upper or lower case, values as text.

    Raises ``InvalidOption``.
    """

    def __init__(self, options: Mapping[str, str], known: Iterable[str], others: Mapping[str, str]) -> None:
        names = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for given, value in options.items():
            lower = _ALIASES.get(given.lower(), given.lower())
            if lower in _OF_SPARK:
                continue
            if lower in others:
                raise InvalidOption(f"{others[lower]}")
            if lower not in names:
                raise _unknown(given, names)
            if names[lower] in self._values:
                raise InvalidOption(f"{names[lower]} is given twice; the prefix kafka. names the same option")
            self._values[names[lower]] = value

    def text(self, name: str) -> str | None:
        """The text of an option; None if the option is not given."""
        return self._values.get(name)

    def given(self, *names: str) -> list[str]:
        """The elements of ``names`` whose options are given."""
        return [name for name in names if name in self._values]

    def parsed(self, name: str, default: Value, parse: Callable[[str], Value], expected: str) -> Value:
        """The value of an option, parsed by ``parse``.

        If ``parse`` raises ``ValueError``, the raised ``InvalidOption`` says which value is ``expected``.
        """
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise InvalidOption(f"{name} is {shown(name, text)}; {expected}") from error

    def name(self, name: str) -> str | None:
        """The text of an option, which must not be empty; None if the option is not given."""
        return self.parsed(name, None, _name, "give a name, or leave it out")

    def flag(self, name: str, default: bool) -> bool:
        """The boolean value of an option, ``true`` or ``false``."""
        return self.parsed(name, default, _flag, "write true or false")

    def count(self, name: str) -> int | None:
        """The value of an option as a number of 1 or more; None if the option is not given."""
        return self.parsed(name, None, _count, "give a whole number of 1 or more")

    def choice(self, name: str, *choices: str) -> str:
        """The value of an option, which must be one of ``choices``. The first choice is the default."""
        found = self._values.get(name, choices[0])
        if found not in choices:
            raise InvalidOption(f"{name} is {shown(name, found)}; choose {' or '.join(choices)}")
        return found

    def seconds(self, name: str, default: Duration) -> float:
        """The value of an option in seconds, a positive duration with its unit."""
        found: Duration = self._values.get(name, default)
        return checked(name, lambda: positive_seconds(name, found))

    def servers(self) -> tuple[str, ...]:
        """The addresses of brokers."""
        text = self._values.get(SERVERS)
        if not text:
            raise InvalidOption(f"{SERVERS} is missing; name at least one broker, such as localhost:7070")
        try:
            return broker_urls(text)
        except ValueError as error:
            raise InvalidOption(
                f"{SERVERS}: {_USER.sub('//***@', str(error).removeprefix('url: '))}"
            ) from None


def read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """The options of a source. Raises ``InvalidOption``."""
    known: tuple[str, ...]
    if is_stream:
        known = (*_READ, *_STREAM_ONLY)
        others = _refused(_BATCH_ONLY, "{} is an option of spark.read; a stream has no end")
    else:
        known = (*_READ, *_BATCH_ONLY)
        others = _refused(_STREAM_ONLY, "{} is an option of spark.readStream; a batch read has no triggers")
    given = Given(
        options, known, {**others, **_NO_GROUPS, "path": "path: name topics with the option subscribe"}
    )
    limits = Limits(
        min_partitions=given.count("minPartitions"),
        max_partitions=given.count("maxPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
        max_offsets_per_trigger=given.count("maxOffsetsPerTrigger"),
        max_bytes_per_trigger=given.count("maxBytesPerTrigger"),
        min_offsets_per_trigger=given.count("minOffsetsPerTrigger"),
        max_trigger_delay_s=given.seconds("maxTriggerDelay", "15m"),
    )
    _check_limits(limits, given)
    isolation: Isolation = "committed"
    if given.choice("isolation", "committed", "uncommitted") == "uncommitted":
        isolation = "uncommitted"
    texts = {name: given.text(name) for name in known}
    return ReadOptions(
        servers=given.servers(),
        fetch_timeout_s=given.seconds("fetchTimeout", "2m"),
        topics=subscription(texts),
        starting=starting(texts, is_stream=is_stream),
        ending=ending(texts),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        include_headers=given.flag("includeHeaders", False),
        isolation=isolation,
        limits=limits,
        group_id=given.name("groupId"),
        place=checked(
            "rack or maxStaleness", lambda: reader_place(given.text("rack"), given.text("maxStaleness"))
        ),
        archive=given.name("archive"),
    )


def write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """The options of a sink. Raises ``InvalidOption``."""
    others = {"path": "path: name the topic with the option topic, or with a column topic"}
    if is_stream:
        why = "{} is an option of df.write; a stream takes its own id and the number of each batch"
        others |= _refused(_WRITE_BATCH_ONLY, why)
    else:
        others |= _refused(_WRITE_STREAM_ONLY, "{} is an option of df.writeStream; here, use txnAppId")
    given = Given(options, (*_WRITE, *_WRITE_BATCH_ONLY, *_WRITE_STREAM_ONLY), others)
    sink_id = given.parsed("sinkId", None, _app_id, "use 1 to 180 of the characters A-Z a-z 0-9 . _ -")
    takes_over = given.flag("sinkTakeover", False)
    if takes_over and sink_id is None:
        raise InvalidOption("sinkTakeover belongs to sinkId; name the sink, or leave both out")
    app_id = given.parsed("txnAppId", None, _app_id, "use 1 to 180 of the characters A-Z a-z 0-9 . _ -")
    version = given.parsed("txnVersion", None, _version, "give a whole number from 0 on")
    if (app_id is None) != (version is None):
        raise InvalidOption("txnAppId and txnVersion belong together; give both, or neither")
    delivery = _delivery(given)
    linger = given.text("linger")
    producer: ProducerSettings = {
        "preset": "throughput",
        "acks": given.text("acks") or "quorum",
        "compression": given.text("compression") or "none",
        "transaction_timeout": given.text("transactionTimeout") or "15m",
        "linger": _LINGER if linger is None else linger,
        "batch_bytes": given.count("batch.bytes"),
    }
    task: ProducerSettings = {
        "delivery": delivery,
        "transactional_id": "sink~task" if delivery == "exactly_once" else None,
    }
    checked(
        "acks, compression, linger, batch.bytes or transactionTimeout",
        lambda: producer_options(**producer | task),
    )
    given.seconds("stagedTimeout", "1h")
    return WriteOptions(
        servers=given.servers(),
        topic=given.name("topic"),
        delivery=delivery,
        producer=producer,
        staged_timeout=given.text("stagedTimeout") or "1h",
        commit_timeout_s=given.seconds("commitTimeout", "2m"),
        app_id=app_id,
        version=version or 0,
        sink_id=sink_id,
        takes_over=takes_over,
    )


def _delivery(given: Given) -> Delivery:
    if given.text("delivery") == "at_most_once":
        raise InvalidOption(
            "delivery is 'at_most_once', but Spark repeats a failed task, which writes its rows again; "
            "choose exactly_once or at_least_once"
        )
    if given.choice("delivery", "exactly_once", "at_least_once") == "exactly_once":
        return "exactly_once"
    if extra := given.given(*_TRANSACTIONAL):
        raise InvalidOption(
            f"delivery is 'at_least_once', without transactions; leave out {', '.join(extra)}"
        )
    return "at_least_once"


def shown(name: str, value: str) -> str:
    """The value of an option as text for a message: without secrets, and at most 200 characters."""
    if _SECRET.search(name):
        return "***"
    return repr(_USER.sub("//***@", value)[:200])


def checked(name: str, check: Callable[[], Value]) -> Value:
    """Return the result of ``check``, a check of the client's options.

    Raises ``InvalidOption`` with the name of the option in Spark.
    """
    try:
        return check()
    except ValueError as error:
        raise InvalidOption(f"{name}: {error}") from error


def _check_limits(limits: Limits, given: Given) -> None:
    if (limits.min_partitions or 0) > (limits.max_partitions or limits.min_partitions or 0):
        raise InvalidOption("minPartitions is above maxPartitions; lower minPartitions")
    rows_min, rows_max = limits.min_offsets_per_trigger, limits.max_offsets_per_trigger
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise InvalidOption("minOffsetsPerTrigger is above maxOffsetsPerTrigger; lower minOffsetsPerTrigger")
    if rows_min is None and given.given("maxTriggerDelay"):
        raise InvalidOption("maxTriggerDelay belongs to minOffsetsPerTrigger; give both, or neither")


def _unknown(given: str, names: Mapping[str, str]) -> InvalidOption:
    close = get_close_matches(given.lower(), names, 1)
    hint = f", did you mean {names[close[0]]}?" if close else ";"
    listed = ", ".join(sorted(names.values(), key=str.lower))
    return InvalidOption(f"{given} is not an option of the format raftlog{hint} known are: {listed}")


def _refused(names: Iterable[str], why: str) -> dict[str, str]:
    return {name.lower(): why.format(name) for name in names}


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def _version(text: str) -> int:
    if not 0 <= int(text) <= _SEQUENCE_MAX:
        raise ValueError(text)
    return int(text)


def _app_id(text: str) -> str:
    if _APP_ID.fullmatch(text) is None:
        raise ValueError(text)
    return text
