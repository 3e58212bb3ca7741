"""Finds the partitions that a source reads, their offsets, and the offsets of positions.

Decides: which states of a partition are errors of the user, and which are lost data. Leaves to others: the
client's retries.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, Protocol, TypeVar, assert_never

from raftlog.client import Client
from raftlog.errors import NoLeader, NotSent, RaftlogError, TopicNotFound
from raftlog.types import TopicPartition
from spark_io.errors import DataLoss, InvalidOption
from spark_io.options import ReadOptions
from spark_io.partition_ends import Bounds, Removed, is_lossless, removed_partitions
from spark_io.planning import Range
from spark_io.positions import AtTime, Position, Positions
from spark_io.targets import no_such_topic

POLL_S: Final = 0.2
Answer = TypeVar("Answer")
_log = logging.getLogger("spark_io")
OffsetOf = Callable[[TopicPartition, AtTime | Literal["earliest"]], int]


class Found(Protocol):
    """A partition as ``topics.partitions`` describes it."""

    partition: int
    leader: int | None
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    size_bytes: int
    records_end: int


def discover(
    client: Client, options: ReadOptions, known: Collection[TopicPartition] | None = ()
) -> dict[TopicPartition, Bounds]:
    """The partitions that the options select, as their leaders describe them.

    ``known`` are the partitions that a stream has read before; None stands for any partitions. Waits for
    leaders, at most ``fetchTimeout``. Raises ``InvalidOption`` for an unknown topic or partition that does
    not exist, ``NotSent`` if no broker is reachable.
    """
    return patiently(options, lambda: _described(client, options, known))


def removed_since(
    client: Client,
    options: ReadOptions,
    begin: Mapping[TopicPartition, int],
    now: Mapping[TopicPartition, Bounds],
) -> dict[TopicPartition, Removed]:
    """The partitions of ``begin`` that were removed.

    ``begin`` are the offsets of a stream, ``now`` the present partitions.
    """
    absent = [one for one in begin if one not in now]
    behind = [one for one, at in begin.items() if one in now and at < now[one].start]
    if not absent and not behind:
        return {}
    return patiently(options, lambda: removed_partitions(client, behind, absent))


def patiently(options: ReadOptions, ask: Callable[[], Answer]) -> Answer:
    """Return the result of ``ask``. Retries for ``fetchTimeout``: brokers may first have to elect leaders."""
    deadline = time.monotonic() + options.fetch_timeout_s
    while True:
        try:
            return ask()
        except RaftlogError as error:
            if isinstance(error, NotSent) or not error.retryable or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def resolved(
    positions: Positions, bounds: Mapping[TopicPartition, Bounds], offset_of: OffsetOf
) -> dict[TopicPartition, int]:
    """The offset of each position. Raises ``InvalidOption`` for a position beyond the end."""
    found: dict[TopicPartition, int] = {}
    for target, position in positions.of(bounds).items():
        found[target] = _resolved(positions, target, position, bounds[target], offset_of)
    return found


def batch_ranges(
    options: ReadOptions, bounds: Mapping[TopicPartition, Bounds], offset_of: OffsetOf
) -> list[Range]:
    """The ranges that a batch reads.

    Raises ``InvalidOption``, and ``DataLoss`` if records of a range are deleted.
    """
    starts = resolved(options.starting, bounds, offset_of)
    ends = resolved(options.ending, bounds, offset_of)
    ranges = []
    for target, start in starts.items():
        end = ends[target]
        if start > end:
            raise InvalidOption(
                f"{options.starting.option} is {start} for {target}, above {options.ending.option}, which is "
                f"{end}; give a start below the end"
            )
        kept = max(start, bounds[target].start)
        if not is_lossless(start, bounds[target]):
            kept = surviving(target, start, bounds[target].start, options.fail_on_data_loss)
        if kept < end:
            ranges.append(Range(target.topic, target.partition, kept, end))
    return ranges


def surviving(target: TopicPartition, wanted: int, log_start: int, fails: bool) -> int:
    """Return the log start, at which a read of deleted records continues.

    Raises ``DataLoss`` if ``fails``.
    """
    lost = (
        f"offsets {wanted} to {log_start - 1} of {target} are deleted, the log begins at {log_start}: "
        "retention was faster than the reader"
    )
    if fails:
        raise DataLoss(f"{lost}; set failOnDataLoss=false to continue at {log_start}, or raise the retention")
    _log.warning("%s; reading continues at offset %d", lost, log_start)
    return log_start


def offset_asked(client: Client) -> OffsetOf:
    """Return a function that asks brokers for the first offset since a time, or the first readable offset."""

    def ask(target: TopicPartition, position: AtTime | Literal["earliest"]) -> int:
        partition = client.partition(target.topic, target.partition)
        if isinstance(position, AtTime):
            return partition.offset_at(datetime.fromtimestamp(position.ms / 1_000, UTC))
        return partition.offset_at(position)

    return ask


def _described(
    client: Client, options: ReadOptions, known: Collection[TopicPartition] | None
) -> dict[TopicPartition, Bounds]:
    topics = options.topics
    if topics.pattern is not None:
        names = [one.name for one in client.topics.list() if not one.internal and topics.matches(one.name)]
    elif topics.topics:
        names = [*topics.topics]
    else:
        names = sorted({one.topic for one in topics.partitions})
    found: dict[TopicPartition, Bounds] = {}
    for name in names:
        is_known = known is None or any(one.topic == name for one in known)
        for body in _partitions(client, name, is_optional=is_known or topics.pattern is not None):
            target = TopicPartition(name, body.partition)
            if not topics.partitions or target in topics.partitions:
                found[target] = _bounds(target, body, options)
    missing = [one for one in topics.partitions if one not in found]
    if known is not None:
        _check_known(client, missing, known)
    return found


def _check_known(
    client: Client, missing: Collection[TopicPartition], known: Collection[TopicPartition]
) -> None:
    """Raise ``InvalidOption`` for partitions that do not exist and that a stream cannot have read before."""
    new = [one for one in missing if one not in known]
    if new and known:
        removed = removed_partitions(client, (), new)
        new = [one for one in new if one not in removed]
    if new:
        raise InvalidOption(f"assign names {', '.join(map(str, new))}, which does not exist")


def _partitions(client: Client, name: str, *, is_optional: bool) -> list[Found]:
    try:
        return [*client.topics.partitions(name)]
    except TopicNotFound as error:
        if is_optional:
            return []  # the topic was deleted a moment ago
        raise no_such_topic(client, error) from None


def _bounds(target: TopicPartition, body: Found, options: ReadOptions) -> Bounds:
    if body.leader is None or body.last_stable_offset < 0:
        raise NoLeader(f"{target} has no leader", topic=target.topic, partition=target.partition)
    end = body.last_stable_offset if options.isolation == "committed" else body.high_watermark
    count = body.high_watermark - body.log_start_offset
    start = body.log_start_offset
    return Bounds(start, max(end, start), body.size_bytes / max(1, count), body.records_end)


def _resolved(
    positions: Positions, target: TopicPartition, position: Position, bounds: Bounds, offset_of: OffsetOf
) -> int:
    match position:
        case "latest":
            return bounds.end
        case "earliest":
            # The first remaining segment may begin with records that readers do not get.
            return _within(offset_of(target, position), bounds) if bounds.start else 0
        case AtTime(ms):
            found = offset_of(target, position)
            if found >= bounds.end and not positions.takes_end_without_record:
                raise InvalidOption(
                    f"{positions.option}: {target} has no record since {ms}; set "
                    "startingOffsetsByTimestampStrategy=latest to begin at its end"
                )
            return _within(found, bounds)
        case int(offset):
            if offset > bounds.end:
                raise InvalidOption(
                    f"{positions.option}: offset {offset} of {target} is beyond its end, {bounds.end}; use "
                    "-1 for latest"
                )
            return offset
    assert_never(position)


def _within(offset: int, bounds: Bounds) -> int:
    """The offset, moved into the bounds: a broker with an archive also knows offsets below the log start."""
    return min(max(offset, bounds.start), bounds.end)
