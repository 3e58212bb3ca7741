"""Parses the options that select partitions, and the positions where a read begins and ends.

Decides: the meaning of the JSON texts, and the precedence of options for the same position. Leaves to others:
the existing partitions and offsets (``discovery``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from raftlog.types import TopicPartition
from spark_io.errors import InvalidOption

Texts = Mapping[str, str | None]
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The position of the first record since this time."""

    ms: int


Position = Literal["earliest", "latest"] | int | AtTime
_NAMED: Final[Mapping[int, Position]] = {-2: EARLIEST, -1: LATEST}


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of a read: topics by name, topics by pattern, or single partitions.

    Exactly one field is set.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def matches(self, topic: str) -> bool:
        """True if the pattern matches the whole name."""
        return self.pattern is not None and re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Positions:
    """One position for all partitions, or a position for each. ``option`` is the option's name."""

    option: str
    everywhere: Position = EARLIEST
    by_partition: Mapping[TopicPartition, Position] = field(default_factory=dict)
    takes_end_without_record: bool = False  # for a time after the newest record

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """The position of each partition.

        Raises ``InvalidOption`` if the option does not name all partitions.
        """
        wanted = sorted(partitions)
        if not self.by_partition:
            return dict.fromkeys(wanted, self.everywhere)
        missing = [str(one) for one in wanted if one not in self.by_partition]
        extra = sorted(str(one) for one in self.by_partition if one not in set(wanted))
        if missing:
            raise InvalidOption(
                f"{self.option} has no offset for {_listed(missing)}; name every partition that is read, "
                "-2 is earliest and -1 is latest"
            )
        if extra:
            raise InvalidOption(f"{self.option} names {_listed(extra)}, which is not read; leave it out")
        return {one: self.by_partition[one] for one in wanted}


def subscription(texts: Texts) -> Subscription:
    """Parse the subscription of the options. Raises ``InvalidOption``."""
    names = [name for name in ("subscribe", "subscribePattern", "assign") if texts.get(name)]
    if len(names) != 1:
        given = " and ".join(names) or "none"
        raise InvalidOption(f"give exactly one of subscribe, subscribePattern and assign; given: {given}")
    text = str(texts[names[0]])
    match names[0]:
        case "subscribe":
            topics = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
            if not all(topics):
                raise InvalidOption(f"subscribe is {text!r}; write topics with commas between them")
            return Subscription(topics=topics)
        case "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise InvalidOption(
                    f"subscribePattern is {text!r}: {error}; write a regular expression"
                ) from error
            return Subscription(pattern=text)
    return Subscription(partitions=_assigned(text))


def starting(texts: Texts, *, is_stream: bool) -> Positions:
    """The start positions of a read.

    One time for all partitions takes precedence over a time for each partition, and this over offsets.
    """
    strategy = texts.get("startingOffsetsByTimestampStrategy") or "error"
    if strategy not in ("error", "latest"):
        raise InvalidOption(
            f"startingOffsetsByTimestampStrategy is {strategy!r}; choose error or latest, for times after "
            "the newest record"
        )
    by_time = _by_time(texts, "startingTimestamp", "startingOffsetsByTimestamp", strategy == "latest")
    if by_time is not None:
        return by_time
    name = "startingOffsets"
    text = texts.get(name) or (LATEST if is_stream else EARLIEST)
    if text.lower() == EARLIEST:
        return Positions(name, EARLIEST)
    if text.lower() == LATEST:
        if not is_stream:
            raise InvalidOption(f"{name} is latest, but a batch read ends there; use latest with readStream")
        return Positions(name, LATEST)
    return Positions(name, by_partition=_numbers(name, text, _offset))


def ending(texts: Texts) -> Positions:
    """The end positions of a batch read; options take precedence as in ``starting``."""
    by_time = _by_time(texts, "endingTimestamp", "endingOffsetsByTimestamp", True)
    if by_time is not None:
        return by_time
    name = "endingOffsets"
    text = texts.get(name) or LATEST
    if text.lower() == LATEST:
        return Positions(name, LATEST)
    if text.lower() == EARLIEST:
        raise InvalidOption(f"{name} is earliest, so nothing is read; use latest or JSON")
    found = _numbers(name, text, _offset)
    if EARLIEST in found.values():
        raise InvalidOption(f"{name} has -2 (earliest), so nothing is read; use -1 (latest) or an offset")
    return Positions(name, by_partition=found)


def _by_time(texts: Texts, single: str, json_name: str, takes_end: bool) -> Positions | None:
    text = texts.get(single)
    if text is not None:
        if not text.isascii() or not text.isdigit():
            raise InvalidOption(f"{single} is {text!r}; give milliseconds since 1970")
        return Positions(single, AtTime(int(text)), takes_end_without_record=takes_end)
    text = texts.get(json_name)
    if text is None:
        return None
    found = _numbers(json_name, text, _time)
    return Positions(json_name, by_partition=found, takes_end_without_record=takes_end)


def _offset(number: int) -> Position:
    if number < -2:
        raise ValueError(number)
    return _NAMED.get(number, number)


def _time(number: int) -> Position:
    if number < 0:
        raise ValueError(number)
    return AtTime(number)


def _numbers(name: str, text: str, parse: Callable[[int], Position]) -> dict[TopicPartition, Position]:
    found: dict[TopicPartition, Position] = {}
    for topic, numbers in _topics(name, text).items():
        if not isinstance(numbers, dict):
            raise _wrong(name, text)
        for partition, number in numbers.items():
            if not str(partition).isdigit() or type(number) is not int:
                raise _wrong(name, text)
            try:
                found[TopicPartition(topic, int(partition))] = parse(number)
            except ValueError:
                raise InvalidOption(
                    f"{name} has {number} for {topic}/{partition}; give 0 or more, or in offsets -2 "
                    "(earliest) and -1 (latest)"
                ) from None
    if not found:
        raise _wrong(name, text)
    return found


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    found = []
    for topic, numbers in _topics("assign", text).items():
        if not isinstance(numbers, list) or not all(type(one) is int and one >= 0 for one in numbers):
            raise InvalidOption(f'assign is {text[:200]!r}; write it as {{"orders": [0, 1]}}')
        found += [TopicPartition(topic, one) for one in numbers]
    if not found:
        raise InvalidOption('assign names no partition; write it as {"orders": [0, 1]}')
    return tuple(sorted(set(found)))


def _topics(name: str, text: str) -> dict[str, object]:
    try:
        found = json.loads(text, object_pairs_hook=_object)
    except ValueError as error:
        raise InvalidOption(f"{name} is {text[:200]!r}, which is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _wrong(name, text)
    return found


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object. Raises ``ValueError`` for a repeated name, whose first value would be ignored."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r} is repeated")
        found[name] = value
    return found


def _wrong(name: str, text: str) -> InvalidOption:
    return InvalidOption(f'{name} is {text[:200]!r}; write it as {{"orders": {{"0": 23, "1": 45}}}}')


def _listed(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
