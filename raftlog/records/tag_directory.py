"""The directory of a batch: the tags of its records, readable by a broker without decoding a record.

A batch whose producer sets ``TAGS_KNOWN_BIT`` lists its tags a second time. Its records are cut into *runs*
of neighbours with equal tags, and each run is a zstd frame of its own. A skippable frame in front of them,
the directory, has the length, the number of records and the tags of each run. Readers of zstd skip the
directory and join the runs: for them it is an ordinary batch. A batch with the bit and without a directory
has no tags. If tags change too often, neighbours share a run, which lists each of their sets of tags;
in compressed batches, records with a rare set of tags do not share a run.

Decides: the layout of the directory, and which part of a batch matches wanted tags. Leaves to others: what is
read and for how long (``partitions.replica.reads``). ``docs/record-format.md`` describes the bytes.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence, Set
from itertools import accumulate, chain, pairwise
from typing import Final, NamedTuple

from raftlog.records.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    TAGS_KNOWN_BIT,
    Batch,
    Codec,
    encode_batch,
    parse_header,
)
from raftlog.records.compression import compress
from raftlog.records.tags import BETWEEN_SETS, BETWEEN_TAGS, TagSelection

RUNS_MAX: Final = 16_384  # per batch; above this, neighbours with different tags share a run
COMPRESSED_RUN_BYTES: Final = 2_048  # average before compression: shorter runs would compress badly
COMPRESSED_RUNS_MIN: Final = 16  # so many runs may be shorter
RARE_SHARE: Final = 4  # rare sets of tags may have so many times fewer runs than that, in addition
DIRECTORY_BYTES_MAX: Final = 512 << 10

_FRAME = struct.Struct("<II")  # head of a zstd frame: magic and length
_DIRECTORY_MAGIC: Final = 0x184D2A54  # one of the sixteen magic numbers that readers of zstd skip
_HEAD = struct.Struct(">BBH")  # version, flags, number of runs
_VERSION: Final = 1
_LISTS_EACH_SET: Final = 1  # a flag; without it neighbours that share a run are listed as one set
_BYTES_PER_RUN: Final = 10
_COMPRESSED_BYTES_MIN: Final = 256  # a shorter run is stored: compression takes 25 µs and gains little

_STORED_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_STORED_BLOCK_BYTES: Final = 1 << 17


class Run(NamedTuple):
    """Neighbouring records: their ``tag_set`` (or several sets, in order), their number and their encoded
    bytes.
    """

    tags: bytes
    record_count: int
    encoded: bytes


def tagged_body(runs: Sequence[Run], *, is_compressed: bool) -> bytes | None:
    """Encode a body of codec zstd with a directory of tags; None if the directory would be too long."""
    runs = _bounded(runs, is_compressed=is_compressed)
    numbers: dict[bytes, int] = {}
    of_run = [numbers.setdefault(run.tags, len(numbers)) for run in runs]
    frames = [_frame(run.encoded, is_compressed=is_compressed) for run in runs]
    count = len(runs)
    directory = b"".join(
        (
            _HEAD.pack(_VERSION, _LISTS_EACH_SET, count),
            struct.pack(f">{count}I", *map(len, frames)),
            struct.pack(f">{count}I", *(run.record_count for run in runs)),
            struct.pack(f">{count}H", *of_run),
            BETWEEN_SETS.join(numbers),
        )
    )
    if len(directory) > DIRECTORY_BYTES_MAX:
        return None
    return b"".join((_FRAME.pack(_DIRECTORY_MAGIC, len(directory)), directory, *frames))


def select(batch: Batch, wanted: TagSelection) -> Batch | None:
    """The part of a batch to send to a reader that wants some tags; None if no record matches.

    Reads the header and the directory, never a record. A batch whose tags are unknown is returned whole, and
    so is a batch that contradicts its directory: then the reader must look at the tags of the records.
    """
    header = batch.header
    if not header.record_count or header.is_control:
        return None
    if not header.attributes & TAGS_KNOWN_BIT:
        return batch
    length = _directory_bytes(batch)
    if length is None:
        return batch if wanted.selects(b"") else None
    view = memoryview(batch.data)
    start = HEADER_BYTES + _FRAME.size
    directory = _Directory.parse(view[start : start + length])
    frames = view[start + length :]
    if directory is None or not directory.fits(len(frames), header.record_count):
        return batch
    chosen = directory.runs_of(wanted)
    if not chosen:
        return None
    if len(chosen) == len(directory.lengths):
        return batch
    ends = [*accumulate(directory.lengths)]
    body = b"".join(frames[ends[run] - directory.lengths[run] : ends[run]] for run in chosen)
    data = encode_batch(
        header._replace(
            record_count=sum(directory.counts[run] for run in chosen),
            attributes=header.attributes & ~TAGS_KNOWN_BIT,
        ),
        body,
    )
    return Batch(data, parse_header(data))


def _directory_bytes(batch: Batch) -> int | None:
    """The length of the directory in bytes; None for a batch without a directory."""
    if batch.header.attributes & CODEC_MASK != Codec.ZSTD or len(batch.data) < HEADER_BYTES + _FRAME.size:
        return None
    magic, length = _FRAME.unpack_from(batch.data, HEADER_BYTES)
    return int(length) if magic == _DIRECTORY_MAGIC else None


class _Directory(NamedTuple):
    """The decoded directory: for each run, the bytes of its frame, its record count and its tags' index in
    ``sets``.
    """

    lists_each_set: bool
    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    of_run: tuple[int, ...]
    sets: list[bytes]

    @classmethod
    def parse(cls, data: memoryview) -> _Directory | None:
        """Decode a directory; None for bytes that are not a directory of this version."""
        if len(data) < _HEAD.size:
            return None
        version, flags, count = _HEAD.unpack_from(data)
        at = _HEAD.size
        if version != _VERSION or len(data) < at + _BYTES_PER_RUN * count:
            return None
        lengths = struct.unpack_from(f">{count}I", data, at)
        counts = struct.unpack_from(f">{count}I", data, at + 4 * count)
        of_run = struct.unpack_from(f">{count}H", data, at + 8 * count)
        sets = bytes(data[at + _BYTES_PER_RUN * count :]).split(BETWEEN_SETS)
        return cls(bool(flags & _LISTS_EACH_SET), lengths, counts, of_run, sets)

    def fits(self, frames_bytes: int, record_count: int) -> bool:
        """Whether the directory describes frames with this total size and this total number of records."""
        return (
            sum(self.lengths) == frames_bytes
            and sum(self.counts) == record_count
            and max(self.of_run, default=0) < len(self.sets)
        )

    def runs_of(self, wanted: TagSelection) -> list[int]:
        """The indexes of the runs that, according to the directory, contain a record with wanted tags."""
        if not self.lists_each_set and wanted.none:
            wanted = wanted.without_none
        matching = wanted.selected_of(self.sets)
        return [run for run, number in enumerate(self.of_run) if number in matching] if matching else []


def _bounded(runs: Sequence[Run], *, is_compressed: bool) -> Sequence[Run]:
    """Join neighbouring runs until there are few enough runs for a directory."""
    groups = _worth_compressing(runs) if is_compressed else [[run] for run in runs]
    step = -(-len(groups) // RUNS_MAX)
    if step > 1:
        groups = [[*chain(*groups[at : at + step])] for at in range(0, len(groups), step)]
    return [group[0] if len(group) == 1 else _joined(group) for group in groups]


def _worth_compressing(runs: Sequence[Run]) -> list[list[Run]]:
    """Group runs that share a frame, so that they compress well.

    Records with a rare set of tags keep their own runs.
    """
    rare = _rare_sets(runs)
    paid_bytes = COMPRESSED_RUNS_MIN * COMPRESSED_RUN_BYTES
    groups = [[runs[0]]]
    for before, run in pairwise(runs):
        paid_bytes += len(before.encoded)
        if run.tags in rare or before.tags in rare:
            groups.append([run])
        elif paid_bytes < COMPRESSED_RUN_BYTES:
            groups[-1].append(run)
        else:
            paid_bytes -= COMPRESSED_RUN_BYTES
            groups.append([run])
    return groups


def _rare_sets(runs: Sequence[Run]) -> Set[bytes]:
    """The sets of tags with the fewest runs: as many sets as the number of runs for rare sets allows."""
    size_bytes = sum(len(run.encoded) for run in runs)
    left = (COMPRESSED_RUNS_MIN + size_bytes // COMPRESSED_RUN_BYTES) // RARE_SHARE
    rare = set[bytes]()
    for tags, count in sorted(Counter(run.tags for run in runs).items(), key=lambda one: (one[1], one[0])):
        left -= count
        if left < 0:
            break
        rare.add(tags)
    return rare


def _joined(runs: Sequence[Run]) -> Run:
    sets = sorted({run.tags for run in runs})
    return Run(
        b"".join(tags or BETWEEN_TAGS for tags in sets),  # two bytes 0 separate two sets
        sum(run.record_count for run in runs),
        b"".join(run.encoded for run in runs),
    )


def _frame(encoded: bytes, *, is_compressed: bool) -> bytes:
    if is_compressed and len(encoded) >= _COMPRESSED_BYTES_MIN:
        return compress(Codec.ZSTD, encoded)
    return _stored(encoded)


def _stored(encoded: bytes) -> bytes:
    """Encode a zstd frame (RFC 8878) of raw blocks, whose header has the length of its content."""
    length = len(encoded)
    if length < 256:
        parts = [_STORED_MAGIC, b"\x20", length.to_bytes(1, "little")]
    elif length < 65_536 + 256:
        parts = [_STORED_MAGIC, b"\x60", (length - 256).to_bytes(2, "little")]
    else:
        parts = [_STORED_MAGIC, b"\xa0", length.to_bytes(4, "little")]
    for at in range(0, length, _STORED_BLOCK_BYTES):
        block = encoded[at : at + _STORED_BLOCK_BYTES]
        is_last = at + _STORED_BLOCK_BYTES >= length
        parts += ((len(block) << 3 | is_last).to_bytes(3, "little"), block)
    return b"".join(parts)
