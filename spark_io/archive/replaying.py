"""Replays records of an archive into a topic, each once.

Decides: how brokers store the progress of a replay job. Leaves to others: transactions (``raftlog.client``).

Each chunk is a transaction that is committed as a batch of the sink ``replay-JOB-TOPIC-PARTITION``, and the
sequence of that batch is the offset in the archive where the next chunk begins. So brokers know the progress
of a job: a restarted job asks them, and continues there. Its first transaction fences an earlier run of the
same job, so the progress does not change afterwards.

The first offset of a job is stored as the sequence of another sink, which an empty transaction commits before
the first chunk. A job that is restarted with another first offset is refused: the stored progress is a single
offset, and could not say which offsets of the new range are replayed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa

from raftlog.client import Client
from raftlog.client.blocking_producer import Producer, Transaction
from raftlog.errors import Conflict, InvalidRequest, RaftlogError, TransactionNotFound
from spark_io.archive.entries import Catalogue
from spark_io.archive.files import read_batches
from spark_io.archive.storage import Storage
from spark_io.commits import begun, commit
from spark_io.errors import ArchiveDamaged
from spark_io.planning import Range

CHUNK_ROWS: Final = 10_000
CHUNK_BYTES: Final = 32 << 20
COMMIT_TIMEOUT_S: Final = 120.0
ORIGINAL: Final = ("orig.topic", "orig.partition", "orig.offset")
_JOB: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
Progress = Callable[[int, int], None]  # the offset where the next chunk begins, and the records sent so far


def replay(
    client: Client,
    storage: Storage,
    catalogue: Catalogue,
    wanted: Range,
    *,
    into: str,
    job: str,
    chunk_rows: int = CHUNK_ROWS,
    progress: Progress = lambda _at, _count: None,
) -> int:
    """Send the records of a range to the partition of ``into`` with an equal number; return their count.

    Raises ``ArchiveDamaged`` for offsets that the archive does not have, before a record is sent, and
    ``InvalidRequest`` for a wrong ``job``, for a job that began at another offset, and if ``into`` cannot
    store the records unchanged.
    """
    if _JOB.fullmatch(job) is None:
        raise InvalidRequest(f"job is {job[:100]!r}; use 1 to 100 of the characters A-Z a-z 0-9 . _ -")
    missing = catalogue.missing(wanted)
    if missing:
        raise ArchiveDamaged(
            f"offsets {missing[0].start} to {missing[0].end - 1} of {wanted.topic}/{wanted.partition} are "
            "not in the archive; choose offsets that `raftlog archive list` shows"
        )
    _check_target(client, into, wanted.partition)
    key = key_of(job, wanted, into)
    with client.producer(
        into, preset="throughput", acks="quorum", transactional_id=id_of(key), compression="zstd"
    ) as producer:
        return _replay_chunks(client, producer, storage, catalogue, wanted, job, key, chunk_rows, progress)


def _check_target(client: Client, into: str, partition: int) -> None:
    """Raise ``InvalidRequest`` if the target topic would change the partition or the timestamp of records."""
    topic = client.topics.describe(into)
    if partition >= topic.partitions:
        raise InvalidRequest(
            f"into: topic {into} has {topic.partitions} partitions, and records of partition {partition} "
            "keep their partition; create a topic with as many partitions as the archived topic"
        )
    if topic.config["message.timestamp.type"] != "CreateTime":
        raise InvalidRequest(
            f"into: brokers set the time of records of {into}, but replayed records keep theirs; run "
            f"`raftlog topic alter {into} --config message.timestamp.type=CreateTime`"
        )


def _replay_chunks(
    client: Client,
    producer: Producer,
    storage: Storage,
    catalogue: Catalogue,
    wanted: Range,
    job: str,
    key: str,
    chunk_rows: int,
    progress: Progress,
) -> int:
    transaction, sent = begun(client, producer, id_of(key)), 0
    try:
        _check_start(client, transaction, wanted, key, job)
        at = max(wanted.start, _newest(client, _chunks_of(key)) or 0)
        pieces = catalogue.pieces(wanted._replace(start=at)) if at < wanted.end else []
        batches = read_batches(storage, pieces, rows_max=min(chunk_rows, 1_000))
        for chunk in _chunks(batches, chunk_rows):
            if transaction.outcome is not None:
                transaction = begun(client, producer, id_of(key))
            with ExitStack() as stack:
                stack.push(transaction)
                count = sum(_send(transaction, batch) for batch in chunk)
                prepared = transaction.prepare()
            at = chunk[-1].column("offset")[-1].as_py() + 1
            newest = commit(client, _chunks_of(key), at, [prepared], timeout_s=COMMIT_TIMEOUT_S)
            if newest != at:
                raise Conflict(f"another run has replayed up to offset {newest}; start the job again")
            sent += count
            progress(at, sent)
    finally:
        if transaction.outcome is None:
            transaction.abort()
    return sent


def _check_start(client: Client, transaction: Transaction, wanted: Range, key: str, job: str) -> None:
    """Store the first offset of a job in brokers.

    Raises ``InvalidRequest`` if another first offset is stored.
    """
    start = _newest(client, key)
    if start is None:
        prepared = transaction.prepare()
        start = commit(client, key, wanted.start, [prepared], timeout_s=COMMIT_TIMEOUT_S)
    if start != wanted.start:
        raise InvalidRequest(
            f"job {job} begins at offset {start} of {wanted.topic}/{wanted.partition}, not at "
            f"{wanted.start}; start the job at that offset, or use another job for other offsets"
        )


def _newest(client: Client, key: str) -> int | None:
    """The newest sequence of a sink, from the error of a commit that brokers must refuse."""
    try:
        client.transactions.commit_batch(key, 0, [f"{key}~asks@0.0"])
    except Conflict as error:
        newest = error.details.get("newest_sequence")
        return newest if isinstance(newest, int) else None
    except TransactionNotFound:
        return None
    raise RaftlogError(f"a broker has committed a batch of {key} that does not exist")


def _chunks(batches: Iterator[pa.RecordBatch], rows_max: int) -> Iterator[list[pa.RecordBatch]]:
    chunk: list[pa.RecordBatch] = []
    for batch in batches:
        chunk.append(batch)
        if sum(one.num_rows for one in chunk) >= rows_max or sum(one.nbytes for one in chunk) >= CHUNK_BYTES:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _send(transaction: Transaction, batch: pa.RecordBatch) -> int:
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    for row, timestamp_ms in zip(batch.to_pylist(), times, strict=True):
        transaction.send(
            row["value"],
            key=row["key"],
            partition=row["partition"],
            headers=[*_headers(row), *_original(row)],
            timestamp=timestamp_ms,
        )
    return int(batch.num_rows)


def _headers(row: dict[str, Any]) -> Iterator[tuple[str, bytes | None]]:
    for header in row["headers"] or ():
        yield header["key"], header["value"]


def _original(row: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    for name in ORIGINAL:
        yield name, str(row[name.removeprefix("orig.")]).encode()


def id_of(key: str) -> str:
    """The transactional id of a job, which begins with the keys of both sinks."""
    return f"{_chunks_of(key)}~0"


def _chunks_of(key: str) -> str:
    return f"{key}~chunks"


def key_of(job: str, wanted: Range, into: str) -> str:
    """The key of a job.

    It is short even for long names, and different for each partition and target topic.
    """
    names = "/".join((job, wanted.topic, str(wanted.partition), into))
    return f"replay-{job[:40]}-{wanted.partition}-{hashlib.sha256(names.encode()).hexdigest()[:16]}"
