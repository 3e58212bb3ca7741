"""The content of a segment file, batch by batch, for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from raftlog.records.batch import Batch, BatchHeader
from raftlog.storage.batch_walk import BatchDamaged, walk_file, walk_headers
from raftlog.storage.filesystem import Filesystem


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch of a segment file, as a row.

    ``problem`` is None for a sound batch; a damaged row is the last.
    """

    position: int
    header: BatchHeader | None  # None if even the header is damaged
    problem: str | None = None

    @property
    def crc_ok(self) -> bool:
        """Whether the length and the checksum of the batch are right."""
        return self.problem is None

    def cells(self) -> dict[str, object]:
        """The values of a table's row by column name, in the order of the columns."""
        header = self.header
        if header is None:
            return {"position": self.position, "crc": f"DAMAGED: {self.problem}"}
        return {
            "position": self.position,
            "offsets": f"{header.base_offset}..{header.last_offset}",
            "leader_epoch": header.leader_epoch,
            "codec": header.attributes & 7,
            "records": header.record_count,
            "size_bytes": header.size_bytes,
            "timestamps": f"{header.base_timestamp}..{header.max_timestamp}",
            "producer": _producer(header),
            "kind": "control" if header.is_control else "data",
            "crc": "ok" if self.problem is None else f"DAMAGED: {self.problem}",
        }


def inspect_segment(filesystem: Filesystem, path: str) -> Iterator[BatchRow]:
    """Yield a row for each batch of a segment file; the first damage is the last row."""
    return (row for row, _ in inspect_batches(filesystem, path))


def inspect_batches(filesystem: Filesystem, path: str) -> Iterator[tuple[BatchRow, Batch | None]]:
    """Yield a row and the batch for each batch of a segment file; its bytes are valid until the next row.

    Rows end at the first damage: the position of the next batch is unknown.
    """
    file = filesystem.open(path)
    try:
        for position, batch in walk_file(file):
            yield BatchRow(position, batch.header), batch
    except BatchDamaged as damage:
        try:
            header_there = next(iter(walk_headers(file, damage.position, file.size)))[1]
        except BatchDamaged:
            yield BatchRow(damage.position, None, damage.reason), None
        else:
            yield BatchRow(damage.position, header_there, damage.reason), None
    finally:
        file.close()


def _producer(header: BatchHeader) -> str:
    if not header.has_producer:
        return "-"
    return f"{header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}"
