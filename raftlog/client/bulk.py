"""Appends many records of one topic at once, without a receipt for each.

Decides: which records share a call of the buffer. Leaves to others: the partition of a key
(``records.keys``), and filling batches (``buffer``). A record costs a third of the time of a call of
``send``.

Records of one partition stay in order: once the queue of a partition has no room, no later record is
appended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from raftlog.client.buffer import RECORD_OVERHEAD_BYTES, Buffer, PartitionQueue
from raftlog.client.partitioners import Router
from raftlog.client.values import headers_bytes
from raftlog.records.builder import Record

SHARED_MAX = 10_000  # records between two looks at the queues


def append_all(
    router: Router, buffer: Buffer, records: Sequence[Record], partition: int | None
) -> list[Record]:
    """Append records, all to ``partition`` or each by its key; return the records that found no room.

    Raises ``PartitionNotFound`` and ``PartitionDecommissioned``.
    """
    left: list[Record] = []
    at = 0
    while at < len(records) and not left:
        some = [*islice(records, at, at + SHARED_MAX)]
        at += len(some)
        if partition is not None:
            left = _append(buffer, router.route(None, None, partition, 0), some, is_named=True)
        elif router.hashes:
            keys = [record.key for record in some if record.key is not None]
            for queue, shared in _by_queue(router, keys, some):
                left += _append(buffer, queue, shared)
            if len(keys) < len(some):
                left += _append_keyless(router, buffer, [record for record in some if record.key is None])
        else:
            left = _append_each(router, buffer, some)
    return [*left, *islice(records, at, None)]


def _by_queue(
    router: Router, keys: list[bytes], records: list[Record]
) -> list[tuple[PartitionQueue, list[Record]]]:
    """The records with a key, grouped by the queue of their partition.

    ``keys`` are the keys of these records.
    """
    with_key = records if len(keys) == len(records) else [one for one in records if one.key is not None]
    found: defaultdict[PartitionQueue, list[Record]] = defaultdict(list)
    for queue, record in zip(router.route_keys(keys), with_key, strict=True):
        found[queue].append(record)
    return [*found.items()]


def _append(
    buffer: Buffer, queue: PartitionQueue, records: list[Record], *, is_named: bool = False
) -> list[Record]:
    """Append records to one partition; return the records that found no room."""
    return records[buffer.append_all(queue, records, [*map(size_of, records)], is_named=is_named) :]


def _append_keyless(router: Router, buffer: Buffer, records: list[Record]) -> list[Record]:
    """Append records without a key, each batch to a random partition; return records that found no room."""
    sizes = [*map(size_of, records)]
    while records:
        queue = router.route(None, None, None, sizes[0])
        taken = buffer.append_all(queue, records, sizes, fills_one=True)
        if not taken:
            break
        records, sizes = records[taken:], sizes[taken:]
    return records


def _append_each(router: Router, buffer: Buffer, records: list[Record]) -> list[Record]:
    """Append records one by one, by partitioner or round robin; return the records that found no room."""
    for at, record in enumerate(records):
        size_bytes = size_of(record)
        queue = router.route(record.key, record.value, None, size_bytes)
        if buffer.append(queue, record, size_bytes, None) is None:
            return records[at:]
    return []


def size_of(record: Record) -> int:
    """An upper bound of the size of a record in a batch, in bytes."""
    value, key, headers = record.value, record.key, record.headers
    size_bytes = RECORD_OVERHEAD_BYTES
    if value is not None:
        size_bytes += len(value)
    if key is not None:
        size_bytes += len(key)
    return size_bytes + headers_bytes(headers) if headers else size_bytes
