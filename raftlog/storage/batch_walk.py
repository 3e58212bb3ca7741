"""Walks over the batches of a segment file, which read headers only or check every checksum.

Decides which batch may follow another, and which bytes count as damaged. Leaves to others: whether damage is
a torn tail or corruption (``recovery``).
"""

from __future__ import annotations

from collections.abc import Iterator

from raftlog.errors import CorruptBatch
from raftlog.records.batch import HEADER_BYTES, Batch, BatchHeader, check_batch, parse_header
from raftlog.storage.filesystem import File

_HEADER_CHUNK_BYTES = 4096
_SCAN_CHUNK_BYTES = 1 << 20


class BatchDamaged(Exception):
    """The bytes at ``position`` are not the expected whole batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"position {position}: {reason}")
        self.position = position
        self.reason = reason


def why_not_next(header: BatchHeader, offset: int, epoch: int) -> str:
    """The reason why a batch cannot be at ``offset`` after an entry of ``epoch``; empty if it can."""
    if header.base_offset != offset:
        return f"offset {header.base_offset} in place of {offset}"
    if header.leader_epoch < epoch:
        return f"epoch {header.leader_epoch} after {epoch}"
    return ""


def walk_headers(
    file: File, position: int, end: int, offset: int | None = None, epoch: int = 0
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch from ``position`` to ``end``; bodies are not read.

    The first batch must be at ``offset`` after an entry of ``epoch``; with None it may be at any offset.
    Raises ``BatchDamaged`` at the position of the next batch if that batch is damaged.
    """
    chunk, chunk_at = b"", position
    while position < end:
        at = position - chunk_at
        if len(chunk) - at < HEADER_BYTES:
            chunk, chunk_at, at = file.read_at(position, _HEADER_CHUNK_BYTES), position, 0
        header = _header(chunk, at, position, end)
        offset, epoch = _next(header, position, offset, epoch)
        yield position, header
        position += header.size_bytes


def walk_batches(
    file: File, position: int, end: int, offset: int | None = None, epoch: int = 0
) -> Iterator[tuple[int, Batch]]:
    """Yield position and batch of each batch from ``position`` to ``end``, after a check of its checksum.

    ``offset``, ``epoch`` and ``BatchDamaged`` have the meaning that they have in ``walk_headers``. A batch's
    bytes are a slice of a buffer that is released when the walk continues.
    """
    chunk, chunk_at = memoryview(b""), position
    while position < end:
        at = position - chunk_at
        if len(chunk) - at < HEADER_BYTES:
            chunk, chunk_at, at = memoryview(file.read_at(position, _SCAN_CHUNK_BYTES)), position, 0
        header = _header(chunk, at, position, end)
        if at + header.size_bytes > len(chunk):
            length = max(_SCAN_CHUNK_BYTES, header.size_bytes)
            chunk, chunk_at, at = memoryview(file.read_at(position, length)), position, 0
        batch = Batch(chunk[at : at + header.size_bytes], header)
        try:
            check_batch(batch)
        except CorruptBatch as error:
            raise BatchDamaged(position, str(error)) from None
        offset, epoch = _next(header, position, offset, epoch)
        yield position, batch
        position += header.size_bytes


def is_blank(file: File, position: int) -> bool:
    """Whether all bytes from ``position`` on are zeros, as ``File.fill`` writes them; True at the end of the
    file.
    """
    while data := file.read_at(position, _SCAN_CHUNK_BYTES):
        if data.count(0) != len(data):
            return False
        position += len(data)
    return True


def walk_file(
    file: File, offset: int | None = None, epoch: int = 0, last: int | None = None
) -> Iterator[tuple[int, Batch]]:
    """Walk over all batches of a file, up to offset ``last`` or to the zeros at its end; see
    ``walk_batches``.
    """
    try:
        for position, batch in walk_batches(file, 0, file.size, offset, epoch):
            yield position, batch
            if batch.last_offset == last:
                return
    except BatchDamaged as damage:
        if not is_blank(file, damage.position):
            raise


def ends_at(file: File, size: int) -> bool:
    """Whether a file has ``size`` bytes, apart from zeros that follow them."""
    return file.size == size or (file.size > size and is_blank(file, size))


def _next(header: BatchHeader, position: int, offset: int | None, epoch: int) -> tuple[int, int]:
    """The offset and the epoch that the batch after this header must follow. Raises ``BatchDamaged``."""
    trouble = why_not_next(header, header.base_offset if offset is None else offset, epoch)
    if trouble:
        raise BatchDamaged(position, trouble)
    return header.last_offset + 1, header.leader_epoch


def _header(chunk: bytes | memoryview, at: int, position: int, end: int) -> BatchHeader:
    try:
        header = parse_header(chunk, at)
    except CorruptBatch as error:
        raise BatchDamaged(position, str(error)) from None
    if header.size_bytes > end - position:
        raise BatchDamaged(
            position, f"batch of {header.size_bytes} bytes is truncated: only {end - position} bytes are left"
        )
    return header
