"""Reads the outputs as committed records, with an HTTP request and the record code of kafka-python.

The client and the record code of raftlog are not used, so an error there cannot hide an error in the brokers.
Needs kafka-python, which the extra ``dev`` installs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

from chaos.at_rest import TIMEOUT_S
from chaos.exactly_once.copies import OF_HEADER, TRANSACTION_HEADER, Copy, Input
from chaos.http_get import http_get
from raftlog.wire import headers, media_types, records

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # the package reads its own version in a deprecated way
    from kafka.record import MemoryRecords


def read_copies(url: str, topics: Sequence[str], partitions: int) -> Iterator[Copy]:
    """Read all outputs that readers of committed records see, through one broker. Raises ``OSError``."""
    for topic in topics:
        for partition in range(partitions):
            yield from _read_partition(url, topic, partition)


def _read_partition(url: str, topic: str, partition: int) -> Iterator[Copy]:
    offset = 0
    while True:
        path = f"{url}{records.FETCH.at(topic=topic, partition=partition)}?offset={offset}"
        data, found_headers = http_get(path, TIMEOUT_S, Accept=media_types.BATCH)
        following = int(found_headers[headers.NEXT_OFFSET])
        for record in _records(data):
            if record.offset >= offset:
                found = {name: (value or b"").decode() for name, value in record.headers}
                yield Copy(
                    Input.parse((record.value or b"").decode()),
                    found[TRANSACTION_HEADER],
                    int(found[OF_HEADER]),
                )
        if following == offset:
            return
        offset = following


def _records(data: bytes) -> Iterator[MemoryRecords]:
    """Yield the records of stored batches, without control records."""
    batches = MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.is_control_batch:
            yield from batch
