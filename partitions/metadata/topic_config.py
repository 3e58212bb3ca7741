"""The settings of a topic: their names, defaults and allowed values.

Decides: which values a topic's owner may set. Leaves to others: the effect of a setting (the replica,
storage, retention). Values come from people and from tools of other systems, so numbers and booleans are also
accepted as text, and durations and sizes also with a unit. They are stored in one form, numbers and texts;
``as_json`` converts them to the types of JSON.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar

from raftlog.errors import InvalidRequest
from raftlog.units import counted, duration_ms, size_bytes
from raftlog.wire.bodies import SettingValue
from raftlog.wire.limits import NAME_PATTERN, REPLICAS_MAX

Value = int | str

Setting = TypeVar("Setting")
MAJORITY: Final = "majority"

_DAY_MS: Final = 24 * 3600 * 1000
_NAME_CHARACTERS_MAX: Final = 100  # of an unknown name that is compared with the known names
_NAME: Final = re.compile(NAME_PATTERN)
CONSUMERS_MAX: Final = 16  # groups that one topic waits for
_INT64_MAX: Final = (1 << 63) - 1
_INT31_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class _Key:
    default: Value
    allowed: str
    read: Callable[[object], Value | None]  # None: not allowed
    shown: Callable[[Value], SettingValue] = lambda value: value


def _truth(default: str) -> _Key:
    return _Key(default, "true or false", _one_of("true", "false"), lambda value: value == "true")


def _whole_number(
    low: int, high: int, *special: int, unit: Callable[[str], int | None] | None = None
) -> Callable[[object], int | None]:
    def read(value: object) -> int | None:
        if isinstance(value, str) and value.isascii() and value.strip().removeprefix("-").isdigit():
            value = int(value) if len(value) <= 20 else None
        elif isinstance(value, str) and unit is not None:
            value = unit(value.strip())
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and (low <= value <= high or value in special)
        ):
            return value
        return None

    return read


def _one_of(*words: str) -> Callable[[object], str | None]:
    def read(value: object) -> str | None:
        text = str(value).lower() if isinstance(value, bool) else value
        return text if isinstance(text, str) and text in words else None

    return read


def _cleanup_policy(value: object) -> str | None:
    words = {word.strip() for word in value.split(",")} if isinstance(value, str) else set()
    if not words or not words <= {"compact", "delete"}:
        return None
    return ",".join(sorted(words))


def _group_names(value: object) -> str | None:
    names = {name.strip() for name in value.split(",")} if isinstance(value, str) and value.strip() else set()
    if not isinstance(value, str) or len(names) > CONSUMERS_MAX:
        return None
    return ",".join(sorted(names)) if all(_NAME.fullmatch(name) for name in names) else None


def _ratio(value: object) -> str | None:
    text = f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value).strip()
    if isinstance(value, bool) or len(text) > 20 or not text.replace(".", "", 1).isdecimal():
        return None
    return text if 0 <= float(text) <= 1 else None


def _replica_count(value: object) -> Value | None:
    return MAJORITY if value == MAJORITY else _whole_number(1, REPLICAS_MAX)(value)


def _milliseconds(high: int, *special: int) -> Callable[[object], int | None]:
    return _whole_number(1, high, *special, unit=duration_ms)


def _bytes(low: int, high: int, *special: int) -> Callable[[object], int | None]:
    return _whole_number(low, high, *special, unit=size_bytes)


_KEYS: Final[Mapping[str, _Key]] = {
    "retention.ms": _Key(
        14 * _DAY_MS,
        "milliseconds or a duration such as 14d, 1 or more, or -1 for no limit",
        _milliseconds(_INT64_MAX, -1),
    ),
    "retention.bytes": _Key(
        -1, "bytes or a size such as 10GiB, 0 or more, or -1 for no limit", _bytes(0, _INT64_MAX, -1)
    ),
    "segment.bytes": _Key(
        128 << 20, f"bytes or a size such as 128MiB, 1024 to {_INT31_MAX}", _bytes(1024, _INT31_MAX)
    ),
    "segment.ms": _Key(
        7 * _DAY_MS, "milliseconds or a duration such as 7d, 1 or more", _milliseconds(_INT64_MAX)
    ),
    "max.message.bytes": _Key(
        (1 << 20) + (64 << 10),  # a record of 1 MiB, the header of its batch, and its framing
        "bytes or a size such as 1MiB, 1024 to 16777216",
        _bytes(1024, 16 << 20),
    ),
    "message.timestamp.type": _Key(
        "LogAppendTime", "LogAppendTime or CreateTime", _one_of("LogAppendTime", "CreateTime")
    ),
    "min.insync.replicas": _Key(
        MAJORITY, "majority, or a number from 1 to the replication factor", _replica_count
    ),
    "cleanup.policy": _Key(
        "delete",
        "delete; compact (the newest record of each key stays); or compact,delete for both",
        _cleanup_policy,
    ),
    "replica.lag.max.ms": _Key(
        10_000, "milliseconds or a duration such as 10s, 1 or more", _milliseconds(_INT31_MAX)
    ),
    "replica.lag.max.records": _Key(
        -1, "records, 1 or more, or -1 for no limit", _whole_number(1, _INT64_MAX, -1)
    ),
    "validate.records": _truth("true"),
    "min.cleanable.dirty.ratio": _Key("0.5", "a number from 0 to 1, such as 0.5", _ratio, float),
    "delete.retention.ms": _Key(
        _DAY_MS,
        "milliseconds or a duration such as 1d, 0 or more",
        _whole_number(0, _INT64_MAX, unit=duration_ms),
    ),
    "retention.archive.required": _truth("false"),
    "retention.consumed.by": _Key(
        "", f"up to {CONSUMERS_MAX} names of consumer groups or queues, with commas", _group_names
    ),
}

DEFAULTS: Final[Mapping[str, Value]] = MappingProxyType({name: key.default for name, key in _KEYS.items()})
"""The default of each setting. ``complete`` replaces ``majority`` by a number."""


PRESETS: Final[Mapping[str, Mapping[str, Value | None]]] = {
    "latency": {"replica.lag.max.ms": 2_000, "validate.records": None},
    "throughput": {"replica.lag.max.ms": None, "validate.records": "false"},
}
"""Settings that each preset sets, or resets to their defaults (None).

Each preset has a value for each of these settings.
"""


def with_preset(preset: str | None, config: Mapping[str, Setting]) -> dict[str, Setting | Value | None]:
    """Add the settings of a preset to a configuration or to changes; keys of ``config`` take precedence."""
    return {**PRESETS.get(preset or "", {}), **config}


def check(changes: Mapping[str, object], *, replication_factor: int) -> dict[str, Value | None]:
    """Convert changes to the stored form; ``None`` resets a key to its default.

    ``replication_factor`` is the smallest number of replicas that a partition of the topic has.

    Raises ``InvalidRequest``, which names the key, the value and the allowed values.
    """
    checked: dict[str, Value | None] = {}
    for name, value in changes.items():
        key = _KEYS.get(name)
        if key is None:
            likely = difflib.get_close_matches(name[:_NAME_CHARACTERS_MAX], _KEYS, 1)
            hint = f"did you mean {likely[0]}? " if likely else ""
            raise _refused(
                name, f"there is no setting {_shown(name)}; {hint}the settings are {', '.join(_KEYS)}"
            )
        found = key.default if value is None else key.read(value)
        if found is None:
            raise _refused(name, f"{name} is {_shown(value)}; allowed: {key.allowed}")
        if name == "min.insync.replicas" and isinstance(found, int) and found > replication_factor:
            raise _refused(
                name,
                f"{name} is {found}, but a partition has {counted(replication_factor, 'replica')}; "
                f"allowed: {key.allowed}",
            )
        checked[name] = None if found == key.default else found
    return checked


def complete(config: Mapping[str, Value], replication_factor: int) -> dict[str, Value]:
    """All settings of a topic, defaults included, with a number in place of ``majority``."""
    whole = {**DEFAULTS, **config}
    if whole["min.insync.replicas"] == MAJORITY:
        whole["min.insync.replicas"] = replication_factor // 2 + 1
    return whole


def as_json(config: Mapping[str, Value]) -> dict[str, SettingValue]:
    """Settings with the types of JSON: booleans as booleans, ratios as numbers."""
    return {name: _KEYS[name].shown(value) for name, value in config.items() if name in _KEYS}


def compacts(config: Mapping[str, SettingValue]) -> bool:
    """Whether the topic is compacted: a record with a newer record of its key is removed."""
    return "compact" in str(config["cleanup.policy"]).split(",")


def deletes(config: Mapping[str, SettingValue]) -> bool:
    """Whether retention deletes old records, even the newest record of a key."""
    return "delete" in str(config["cleanup.policy"]).split(",")


def requires_archive(config: Mapping[str, Value]) -> bool:
    """Whether retention deletes old records only once they are archived."""
    return config["retention.archive.required"] == "true"


def consumers(config: Mapping[str, Value]) -> tuple[str, ...]:
    """The groups and queues in ``retention.consumed.by``.

    A segment that all have consumed is deleted early.
    """
    return tuple(name for name in str(config["retention.consumed.by"]).split(",") if name)


def number(config: Mapping[str, Value], key: str) -> int:
    """A numeric setting of a complete configuration."""
    value = config[key]
    assert isinstance(value, int), key
    return value


def _refused(name: str, message: str) -> InvalidRequest:
    return InvalidRequest(message, field=f"config.{name}"[:200])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
