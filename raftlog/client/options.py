"""Options of a client and a producer: names, defaults, presets, units and bounds.

A duration is text with a unit (``"5ms"``, ``"30s"``, ``"14d"``) or a ``timedelta``. A bare number is
refused, since it may mean seconds or milliseconds; only 0 needs no unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, TypedDict, TypeVar

from raftlog.acks import acks_word
from raftlog.client.delivery import of_producer
from raftlog.client.tls import Tls
from raftlog.records.codecs import Codec
from raftlog.units import duration_ms
from raftlog.wire.limits import REPLICAS_MAX

Value = TypeVar("Value")
Duration = str | timedelta | Literal[0]
Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""``(topic, key, value, partition_count) -> partition``. Key and value are the bytes to store."""

PORT_DEFAULT = 7070
URL_DEFAULT = f"raftlog://localhost:{PORT_DEFAULT}"
_PLAIN_ADDRESS = re.compile(r"(?:(?:raftlog|http)://)?([a-z0-9]+(?:[.-][a-z0-9]+)*):([1-9][0-9]{0,4})")
COMPRESSIONS: Mapping[str, Codec] = {codec.name.lower(): codec for codec in Codec}
PARTITIONERS = ("sticky", "round_robin")
BATCH_BYTES_MAX = 16 << 20
_TRANSACTIONAL_ID = re.compile(r"[A-Za-z0-9._~-]{1,249}")


@dataclass(frozen=True, slots=True)
class Preset:
    """Defaults of a producer's options."""

    linger: Duration = "5ms"
    batch_bytes: int = 256 << 10
    buffer_bytes: int = 32 << 20


PRESETS: Mapping[str, Preset] = {
    "latency": Preset(linger=0, batch_bytes=16 << 10),
    "throughput": Preset(linger="20ms", batch_bytes=1 << 20, buffer_bytes=64 << 20),
}
"""``latency`` sends small batches at once; ``throughput`` waits for larger ones."""


@dataclass(frozen=True, slots=True)
class ReaderPreset:
    """Defaults of the options of consumers, workers and readers of one partition.

    ``linger`` is how long a reader waits at the end of a partition before it asks for more, so that records
    gather.
    """

    linger: Duration = 0
    limit: int = 500
    prefetch_bytes: int = 8 << 20
    max_bytes: int = 1 << 20


READER_PRESETS: Mapping[str, ReaderPreset] = {
    "latency": ReaderPreset(prefetch_bytes=256 << 10, max_bytes=64 << 10),
    "throughput": ReaderPreset(linger="20ms", limit=5_000, max_bytes=4 << 20),
}
"""``latency`` fetches few records at a time, so that none waits for many; ``throughput`` fetches many."""


class TimeoutSettings(TypedDict, total=False):
    """Options of ``Client.from_env``: time limits of requests. ``AsyncClient`` has the defaults."""

    request_timeout: Duration  # "10s": of one request; a produce sends it to the broker
    retry_timeout: Duration  # "30s": of a call with all its retries


class PlaceSettings(TypedDict, total=False):
    """Options of readers with a rack. ``reader_place`` checks them."""

    rack: str | None  # None: readers read from leaders, else from the replicas in this rack
    max_staleness: Duration | None  # None: "10s"; how old the knowledge of a replica in the rack may be


class ClientSettings(TimeoutSettings, PlaceSettings, total=False):
    """Options of ``Client`` and ``Client.from_url``."""

    tls: Tls | None  # None: the files that the environment names; for https:// URLs


class TagSettings(TypedDict, total=False):
    """Options that select records by their tags."""

    tags: Sequence[str] | None  # None: all records; else those with any of these tags
    tags_all: Sequence[str] | None  # None: all records; else those with all of these tags
    tags_none: Sequence[str] | None  # None: all records; else those with none of these tags


class ProducerSettings(TypedDict, total=False):
    """Options of ``client.producer``. ``producer_options`` checks them and has the defaults."""

    delivery: str | None  # None: as acks says; else "at_most_once", "at_least_once" or "exactly_once"
    acks: str | int | None  # None: "quorum", or as delivery says; else 0, 1, "every" or a number of replicas
    linger: Duration | None  # None: "5ms", or of the preset; how long a batch waits for more records
    batch_bytes: int | None  # None: 256 KiB, or of the preset; a larger record is sent alone
    buffer_bytes: int | None  # None: 32 MiB, or of the preset; above it ``send`` waits
    compression: str  # "none": no compression; else "gzip", "snappy", "lz4" or "zstd"
    partitioner: Partitioner | str | None  # None: "sticky"; else "round_robin" or a function
    idempotent: bool | None  # None: True, unless acks is 0; whether repetitions are stored once
    delivery_timeout: Duration  # "30s": from ``send`` of a record to its outcome
    preset: str | None  # None: none; "latency" and "throughput" have other defaults of the sizes and linger
    transactional_id: str | None  # None: no transactions; of one producer that runs, and of its restarts
    transaction_timeout: Duration  # "60s": a transaction that is open for longer is aborted
    run_epoch: int | None  # None: no task of a sink; else the epoch of its run


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """A producer's checked options. ``acks`` is the text of the query parameter."""

    acks: str
    linger_s: float
    batch_bytes: int
    buffer_bytes: int
    codec: Codec
    partitioner: Partitioner | Literal["sticky", "round_robin"]
    is_idempotent: bool
    delivery_timeout_s: float
    transactional_id: str | None
    transaction_timeout_ms: int
    run_epoch: int | None

    @property
    def wants_answer(self) -> bool:
        """False for ``acks=0``: a send without an acknowledgement has no outcome, so it is never retried."""
        return self.acks != "0"


def producer_options(
    *,
    delivery: str | None = None,
    acks: str | int | None = None,
    linger: Duration | None = None,
    batch_bytes: int | None = None,
    buffer_bytes: int | None = None,
    compression: str = "none",
    partitioner: Partitioner | str | None = None,
    idempotent: bool | None = None,
    delivery_timeout: Duration = "30s",
    preset: str | None = None,
    transactional_id: str | None = None,
    transaction_timeout: Duration = "60s",
    run_epoch: int | None = None,
) -> ProducerOptions:
    """Check the options of a producer. Raises ``ValueError`` that names the option and its choices."""
    base = Preset() if preset is None else choice("preset", preset, PRESETS)
    batch_bytes = base.batch_bytes if batch_bytes is None else batch_bytes
    buffer_bytes = base.buffer_bytes if buffer_bytes is None else buffer_bytes
    wanted_acks = None if acks is None else _acks(acks)
    checked_acks, is_idempotent = of_producer(delivery, wanted_acks, idempotent, transactional_id)
    linger = base.linger if linger is None else linger
    linger_s, delivery_timeout_s = _times(linger, delivery_timeout)
    if transactional_id is not None:
        _check_transactional(transactional_id, checked_acks, is_idempotent)
    return ProducerOptions(
        acks=checked_acks,
        linger_s=linger_s,
        batch_bytes=_between("batch_bytes", batch_bytes, 1, BATCH_BYTES_MAX),
        buffer_bytes=_between("buffer_bytes", buffer_bytes, 1, 1 << 40),
        codec=choice("compression", compression, COMPRESSIONS),
        partitioner=_partitioner(partitioner),
        is_idempotent=is_idempotent,
        delivery_timeout_s=delivery_timeout_s,
        transactional_id=transactional_id,
        transaction_timeout_ms=milliseconds("transaction_timeout", transaction_timeout),
        run_epoch=run_epoch,
    )


def reader_preset(name: str | None, **options: Duration | int | None) -> ReaderPreset:
    """The preset with this name, or the defaults, updated by the ``options`` that are not None.

    Raises ``ValueError`` that lists the names.
    """
    base = ReaderPreset() if name is None else choice("preset", name, READER_PRESETS)
    given: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
    return replace(base, **given)


def seconds(name: str, value: Duration) -> float:
    """A duration in seconds. Raises ``ValueError`` that shows how to write one."""
    if isinstance(value, timedelta):
        found = value.total_seconds()
        if found >= 0:
            return found
    elif isinstance(value, str):
        found_ms = duration_ms(value)
        if found_ms is not None:
            return found_ms / 1_000
    elif value == 0:
        return 0.0
    raise ValueError(f"{name} is {value!r}; write a duration with its unit: '5ms', '30s', '10m', '2h', '14d'")


def positive_seconds(name: str, value: Duration) -> float:
    """A time limit in seconds. Raises ``ValueError`` for 0, and wherever ``seconds`` does."""
    found = seconds(name, value)
    if not found:
        raise ValueError(f"{name} is {value!r}; it must be greater than 0")
    return found


def positive(name: str, value: int) -> int:
    """A number of 1 or more. Raises ``ValueError`` for anything else."""
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is {value!r}; give a whole number of 1 or more")
    return value


def milliseconds(name: str, value: Duration) -> int:
    """A duration in whole milliseconds."""
    return round(seconds(name, value) * 1_000)


def broker_urls(url: str | Sequence[str]) -> tuple[str, ...]:
    """The HTTP addresses of ``raftlog://host:port,host:port``, of an ``http://`` URL, or of a list of these.

    The first part may omit its scheme, and every part its port. In a text, a part without a scheme has the
    scheme of the previous part. Raises ``ValueError``, also for URLs with and without TLS together: a client
    that uses TLS never sends a request without TLS.
    """
    parts = _with_schemes(url.split(",")) if isinstance(url, str) else [*url]
    found = [_broker_url(part) for part in parts]
    if not found:
        raise ValueError("url: name at least one broker, such as raftlog://localhost:7070")
    if len({each.partition("://")[0] for each in found}) > 1:
        raise ValueError(
            f"url: {', '.join(found)} are with and without TLS; give all of them https://, or none"
        )
    return tuple(dict.fromkeys(found))


def usable_url(given: str, advertised: str | None) -> str | None:
    """The URL that a broker advertises, without a final slash.

    None for a missing URL, and for a URL without TLS if the URL ``given`` to the client has TLS.
    """
    if not advertised or (given.startswith("https:") and not advertised.startswith("https://")):
        return None
    return advertised.rstrip("/")


def _with_schemes(parts: Iterable[str]) -> Iterator[str]:
    scheme = ""
    for part in parts:
        if "://" in part:
            scheme = part.partition("://")[0] + "://"
            yield part
        else:
            yield scheme + part.strip()


def _broker_url(part: str) -> str:
    if (plain := _PLAIN_ADDRESS.fullmatch(part)) and int(plain[2]) < 1 << 16 and plain[2] != "80":
        return f"http://{plain[1]}:{plain[2]}"
    from yarl import URL  # costs much of the time of a short command

    scheme, separator, address = part.strip().rpartition("://")
    if separator and scheme not in ("raftlog", "http", "https"):
        raise ValueError(f"url: {part!r} has the scheme {scheme!r}; use raftlog://, http:// or https://")
    scheme = "https" if scheme == "https" else "http"
    try:
        url = URL(f"{scheme}://{address.rstrip('/')}")
        if url.host and url.explicit_port is None:
            url = url.with_port(PORT_DEFAULT)
    except ValueError as error:
        raise ValueError(f"url: {part!r} is not an address: {error}") from error
    if url.user is not None or url.password is not None:
        raise ValueError(f"url: leave out user and password of {url.host}: brokers know no users")
    if not url.host or url.path != "/" or url.query_string or url.fragment:
        raise ValueError(f"url: {part!r} is not an address; write raftlog://host:port,host:port")
    return str(url.origin())


def _times(linger: Duration, delivery_timeout: Duration) -> tuple[float, float]:
    linger_s = seconds("linger", linger)
    delivery_timeout_s = positive_seconds("delivery_timeout", delivery_timeout)
    if linger_s >= delivery_timeout_s:
        raise ValueError(
            f"linger is {linger!r} and delivery_timeout {delivery_timeout!r}: a record would fail before its "
            "batch is sent; make linger shorter than delivery_timeout"
        )
    return linger_s, delivery_timeout_s


def _check_transactional(transactional_id: str, acks: str, is_idempotent: bool) -> None:
    if _TRANSACTIONAL_ID.fullmatch(transactional_id) is None:
        raise ValueError(
            f"transactional_id is {transactional_id!r}; use 1 to 249 of the characters A-Z a-z 0-9 . _ - ~"
        )
    if acks in ("0", "1"):
        raise ValueError(f"acks is {acks!r}; a transaction needs 'quorum', 'every' or a number of replicas")
    if not is_idempotent:
        raise ValueError("idempotent is False; a transaction stores each record once")


def _acks(value: str | int) -> str:
    word = None if isinstance(value, bool) else acks_word(str(value))
    if word is not None and (not word.isdigit() or int(word) <= REPLICAS_MAX):
        return word
    raise ValueError(f"acks is {value!r}; choose 0, 1, 'quorum', 'every' or a number of replicas")


def _partitioner(value: Partitioner | str | None) -> Partitioner | Literal["sticky", "round_robin"]:
    if value is None or value == "sticky":
        return "sticky"
    if value == "round_robin":
        return "round_robin"
    if not isinstance(value, str) and callable(value):
        return value
    raise ValueError(
        f"partitioner is {value!r}; choose {' or '.join(map(repr, PARTITIONERS))}, "
        "or give a function (topic, key, value, partition_count) -> int"
    )


def _between(name: str, value: int, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; give a number of bytes from {low} to {high}")
    return value


def choice(name: str, value: str, choices: Mapping[str, Value]) -> Value:
    """The value in ``choices`` for a name. Raises ``ValueError`` that lists the names."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose {', '.join(map(repr, choices))}")
    return choices[value]
