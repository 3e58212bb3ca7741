"""Tells brokers up to which offset each partition is archived.

Decides: up to which offset an archive has no gap. In topics with ``retention.archive.required``, retention
deletes only records below the reported offset. Leaves to others: which files count (``entries``).

A report is safe to repeat: brokers keep the highest offset. It is sent after the manifest is written, so all
offsets that brokers count as archived are in files that count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from raftlog.client import Client
from raftlog.errors import OffsetOutOfRange, PartitionNotFound, TopicNotFound
from raftlog.types import TopicPartition
from spark_io.archive.entries import check_identity
from spark_io.planning import Range

IsEmpty = Callable[[Range], bool]


class Extent(Protocol):
    """Archived offsets, ``end`` excluded."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


class Archived(Protocol):
    """An archive.

    ``of`` has the archived offsets of a partition, in order: the files of a catalogue, or the range of a
    Delta table.
    """

    def of(self, target: TopicPartition) -> Sequence[Extent]: ...

    def topic_ids(self, topic: str) -> Collection[str]: ...


@dataclass(frozen=True, slots=True)
class Reach:
    """The offsets of a partition in the log and in the archive.

    ``archived_up_to`` is the offset that brokers have stored.
    """

    target: TopicPartition
    log_start: int
    archived_up_to: int
    archive_end: int


def report(
    client: Client, archived: Archived, topics: Iterable[str], *, changes_nothing: bool = False
) -> list[Reach]:
    """Report to brokers the archived offset of each partition of these topics that the archive has.

    Topics that do not exist are left out. With ``changes_nothing`` no report is sent. Raises
    ``ArchiveOverlap`` if the archive has another topic with the name of one of these topics, and
    ``InvalidRequest`` if the archive has offsets that a log does not have yet.
    """
    found = []
    for topic in sorted(set(topics)):
        try:
            check_identity(archived, topic, client.topics.describe(topic).topic_id)
            partitions = client.topics.partitions(topic)
        except TopicNotFound:
            continue
        for one in partitions:
            target = TopicPartition(topic, one.partition)
            files = archived.of(target)
            if not files:
                continue
            start = max(one.log_start_offset, one.archived_up_to)
            end = reached(archived, target, start, lambda gap: first_record(client, gap) >= gap.end)
            if end > one.archived_up_to and not changes_nothing:
                with suppress(PartitionNotFound):  # the partition was removed a moment ago
                    client.partitions.set_archived(topic, one.partition, end)
            at = one.archived_up_to if changes_nothing else max(end, one.archived_up_to)
            found.append(Reach(target, one.log_start_offset, at, max(file.end for file in files)))
    return found


def reached(archived: Archived, target: TopicPartition, start: int, is_empty: IsEmpty) -> int:
    """The offset up to which the archive has all records from ``start`` on; ``start`` if it has none.

    ``is_empty`` says whether a range of offsets that no file covers has no records.
    """
    at = start
    for one in archived.of(target):
        if one.end <= at:
            continue
        if one.start > at and not is_empty(Range(target.topic, target.partition, at, one.start)):
            break
        at = one.end
    return at


def first_record(client: Client, gap: Range) -> int:
    """The offset of the first readable record in a range; the end of the range if it has no such record."""
    partition, at = client.partition(gap.topic, gap.partition), gap.start
    while at < gap.end:
        try:
            chunk = partition.read(at, limit=1)
        except (OffsetOutOfRange, PartitionNotFound, TopicNotFound):
            return at  # deleted
        if chunk.messages:
            return chunk.messages[0].offset
        if chunk.next_offset <= at:
            return at  # unknown
        at = chunk.next_offset
    return gap.end


def is_gone(client: Client, gap: Range) -> bool:
    """Whether the log has no records in this range of offsets now, for instance because they are deleted."""
    try:
        partitions = client.topics.partitions(gap.topic)
    except TopicNotFound:
        return True
    found = next((one for one in partitions if one.partition == gap.partition), None)
    if found is None:
        return True
    kept = gap._replace(start=min(max(gap.start, found.log_start_offset), gap.end))
    return first_record(client, kept) >= kept.end
