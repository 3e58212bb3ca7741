"""Encodes manifests as JSON, and builds the catalogue of the files that count. No IO.

Decides: the JSON of a manifest, the files of a catalogue, and which offsets are an overlap or a gap. Leaves
to others: reading manifests (``catalogue``) and the content of files (``files``).

Entries are pickled between the driver and tasks, sometimes with the classes of this package pickled by value.
Pickled by value, msgspec structs lose their fields, and dataclasses that msgspec has encoded or decoded
cannot be pickled. So msgspec encodes and decodes only dicts and lists here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import groupby
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from raftlog.types import TopicPartition
from raftlog.wire.decoding import UNREADABLE
from spark_io.errors import ArchiveDamaged, ArchiveOverlap
from spark_io.planning import Range

VERSION: Final = 1
MANIFESTS: Final = "_manifest"
GENERATIONS: Final = f"{MANIFESTS}/_generation"
DELTA_LOG: Final = "_delta_log"  # an archive with this folder is a Delta table, without manifests
_NUMBERED: Final = re.compile(r"([0-9]{20})\.json")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The entry of a file in a manifest.

    ``end`` is excluded. ``rows`` may be less than the number of offsets, as compaction and transactions leave
    offsets without records. ``crc`` is the CRC-32C of the file's bytes. ``term`` is the highest term of its
    records, and ``topic_id`` the id of its topic, which differs from the ids of earlier topics with an equal
    name; each is None if the writer did not know it.
    """

    path: str
    topic: str
    partition: int
    start: int
    end: int
    rows: int
    bytes: int
    crc: int
    min_timestamp: int
    max_timestamp: int
    term: int | None = None
    topic_id: str | None = None

    @property
    def target(self) -> TopicPartition:
        """The partition of the file's records."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The files that one batch has written."""

    v: int = VERSION
    files: tuple[Entry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Generation:
    """All files at the time of a compaction. ``through`` is the last included batch of each query."""

    v: int = VERSION
    files: tuple[Entry, ...] = ()
    through: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of a partition between two files that no file covers."""

    target: TopicPartition
    start: int
    end: int


class Catalogue:
    """The files that count, by partition and offset."""

    def __init__(self, files: Iterable[Entry], through: Mapping[str, int], generation: int) -> None:
        ordered = sorted(files, key=lambda one: (one.topic, one.partition, one.start, one.end))
        self._files = {target: [*some] for target, some in groupby(ordered, key=lambda one: one.target)}
        self.through = dict(through)
        self.generation = generation

    @property
    def files(self) -> list[Entry]:
        """All files that count, in order."""
        return [one for some in self._files.values() for one in some]

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that have files."""
        return list(self._files)

    def of(self, target: TopicPartition) -> list[Entry]:
        """The files of a partition, ordered by start.

        If files overlap, the last file may end before an earlier file ends.
        """
        return self._files.get(target, [])

    def end(self, target: TopicPartition) -> int:
        """The end of the archived offsets of a partition that has files."""
        return max(one.end for one in self.of(target))

    def topic_ids(self, topic: str) -> set[str]:
        """The ids of the archived topics that have, or had, this name.

        Ids that writers did not know are missing.
        """
        return {one.topic_id for one in self.files if one.topic == topic and one.topic_id is not None}

    def pieces(self, wanted: Range) -> list[tuple[Entry, Range]]:
        """The files with offsets of a range, each with the offsets to read from it.

        No offset is read twice.
        """
        found, at = [], wanted.start
        for one in self.of(TopicPartition(wanted.topic, wanted.partition)):
            start, end = max(one.start, at), min(one.end, wanted.end)
            if start < end:
                found.append((one, wanted._replace(start=start, end=end)))
                at = end
        return found

    def missing(self, wanted: Range) -> list[Range]:
        """The offsets of a range that no file covers."""
        found, at = [], wanted.start
        for _, piece in self.pieces(wanted):
            if piece.start > at:
                found.append(wanted._replace(start=at, end=piece.start))
            at = max(at, piece.end)
        if at < wanted.end:
            found.append(wanted._replace(start=at))
        return found

    def gaps(self) -> list[Gap]:
        """The offsets between the files of each partition that no file covers."""
        found = []
        for target, files in self._files.items():
            whole = Range(target.topic, target.partition, files[0].start, self.end(target))
            found += [Gap(target, one.start, one.end) for one in self.missing(whole)]
        return found

    def overlaps(self) -> list[tuple[Entry, Entry]]:
        """Pairs of files with common offsets: the earlier file that reaches furthest, and the later file."""
        return [pair for files in self._files.values() for pair in _overlapping(files)]

    def check_added(self, added: Sequence[Entry]) -> None:
        """Raise ``ArchiveOverlap`` unless the new files can be added.

        New files cannot be added if they share offsets with each other or with files that count, or if they
        belong to another topic with the name of an archived topic.
        """
        for before, after in Catalogue(added, {}, 0).overlaps():
            raise ArchiveOverlap(
                f"two tasks have written offsets of {before.target} that overlap, {before.start} to "
                f"{before.end - 1} and {after.start} to {after.end - 1}: rows of a partition must reach the "
                'archive in order; leave out repartition(), or use repartition("topic", "partition")'
            )
        for topic, topic_id in {(one.topic, one.topic_id) for one in added}:
            check_identity(self, topic, topic_id)
        for one in added:
            for before, _ in self.pieces(Range(one.topic, one.partition, one.start, one.end)):
                raise ArchiveOverlap(
                    f"offsets {one.start} to {one.end - 1} of {one.target} are archived in {before.path}: "
                    "another query writes to this archive, or the checkpoint is new; set startingOffsets "
                    "to the archive's end (`raftlog archive list`), or use another path"
                )


class Identified(Protocol):
    """An archive that may know the ids of its topics."""

    def topic_ids(self, topic: str) -> Collection[str]:
        """The known ids of the archived topics that have, or had, this name."""


def check_identity(archived: Identified, topic: str, topic_id: str | None) -> None:
    """Raise ``ArchiveOverlap`` if the archive has records of a topic with this name and another id."""
    if topic_id is not None and any(one != topic_id for one in archived.topic_ids(topic)):
        raise ArchiveOverlap(
            f"the archive has records of an earlier topic {topic}, which was deleted and created again; use "
            "another archive"
        )


def catalogue_of(
    generation: tuple[int, Generation] | None, manifests: Mapping[tuple[str, int], Manifest]
) -> Catalogue:
    """Build the catalogue from the newest generation and the later manifests.

    ``manifests`` are by query and batch.
    """
    number, base = generation or (0, Generation())
    files, through = [*base.files], dict(base.through)
    for (query, batch), manifest in sorted(manifests.items()):
        if batch > base.through.get(query, -1):
            files += manifest.files
            through[query] = max(batch, through.get(query, -1))
    return Catalogue(files, through, number)


def reach(archived: Catalogue, target: TopicPartition, log_start: int) -> int:
    """The first offset from which files reach ``log_start`` without a gap; ``log_start`` if no file does."""
    missing = archived.missing(Range(target.topic, target.partition, 0, log_start))
    return missing[-1].end if missing else 0


def joined(added: Sequence[Entry], archived: Catalogue, is_empty: Mapping[Range, bool]) -> list[Entry]:
    """The new files, each extended over the gap before it if this gap is known to have no records."""
    found = []
    for one in added:
        gap = gap_before(one, added, archived)
        is_joined = gap is not None and is_empty.get(gap, False)
        found.append(replace(one, start=gap.start) if gap and is_joined else one)
    return found


def gap_before(one: Entry, added: Sequence[Entry], archived: Catalogue) -> Range | None:
    """The offsets between a new file and the previous file; None without a gap or without a previous file."""
    others = (*archived.of(one.target), *(each for each in added if each.target == one.target))
    ends = [each.end for each in others if each.end <= one.start]
    if not ends or max(ends) == one.start:
        return None
    return Range(one.topic, one.partition, max(ends), one.start)


def data_path(topic: str, partition: int, start: int, end: int, token: str) -> str:
    """The path of a data file, relative to the address of the archive."""
    return f"topic={quote(topic, safe='')}/partition={partition}/{start:020}-{end:020}-{token}.parquet"


def manifest_folder(query: str) -> str:
    """The folder of the manifests of a query, relative to the address of the archive."""
    return f"{MANIFESTS}/{quote(query, safe='')}"


def manifest_path(query: str, batch: int) -> str:
    """The path of the manifest of a batch, relative to the address of the archive."""
    return f"{manifest_folder(query)}/{batch:020}.json"


def generation_path(number: int) -> str:
    """The path of the file of a generation, relative to the address of the archive."""
    return f"{GENERATIONS}/{number:020}.json"


def number_of(name: str) -> int | None:
    """The number in the name of a manifest or generation; None for the name of any other file."""
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])


def encoded(value: Manifest | Generation) -> bytes:
    """Encode a manifest or a generation as JSON, with line breaks so that people can read it."""
    return msgspec.json.format(msgspec.json.encode(asdict(value)), indent=1) + b"\n"


def manifest_in(path: str, data: bytes) -> Manifest:
    """Decode a manifest. Raises ``ArchiveDamaged``."""
    files, _ = _decoded(path, data)
    return Manifest(files=files)


def generation_in(path: str, data: bytes) -> Generation:
    """Decode a generation. Raises ``ArchiveDamaged``."""
    files, through = _decoded(path, data)
    return Generation(files=files, through=through)


def _decoded(path: str, data: bytes) -> tuple[tuple[Entry, ...], dict[str, int]]:
    try:
        found = msgspec.json.decode(data, type=dict)
        version = msgspec.convert(found.get("v", VERSION), int)
        if version == VERSION:
            files = tuple(map(_entry, msgspec.convert(found.get("files", ()), list[dict[str, Any]])))
            return files, msgspec.convert(found.get("through", {}), dict[str, int])
    except (*UNREADABLE, TypeError) as error:
        raise ArchiveDamaged(f"{path} is not a manifest: {error}; restore it from a copy") from error
    raise ArchiveDamaged(f"{path} has version {version}, this program reads {VERSION}; upgrade raftlog")


def _entry(found: dict[str, Any]) -> Entry:
    """Convert an entry from JSON. Ignores unknown fields, which later versions may add.

    Raises ``TypeError`` for a wrong entry.
    """
    entry = Entry(**{one.name: found[one.name] for one in fields(Entry) if one.name in found})
    for name, value in vars(entry).items():
        expected = str if name in ("path", "topic", "topic_id") else int
        if type(value) is not expected and not (name in ("term", "topic_id") and value is None):
            raise TypeError(f"{name} of a file is {value!r}, not {expected.__name__}")
    return entry


def _overlapping(files: Sequence[Entry]) -> list[tuple[Entry, Entry]]:
    found, furthest = [], files[0]
    for one in files[1:]:
        if one.start < furthest.end:
            found.append((furthest, one))
        if one.end > furthest.end:
            furthest = one
    return found
