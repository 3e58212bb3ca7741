"""What one topic asks of its batches and replicas, and whether a produced body keeps to it.

Decides: the checks of a produce that need no log: size, checksum, counts, bits, and on request the
records themselves. Leaves to others: sequences (``producers``), leadership and health (``replica``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partitions.values import TopicConfig
from raftlog.errors import CorruptBatch, InvalidRequest
from raftlog.records.batch import Batch, Buffer, split_batches, validate_produced
from raftlog.records.reader import read_records

Body = Buffer | Sequence[Buffer]
"""Batches back to back, in one buffer or several; a batch does not cross buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """The part of a topic's configuration that a replica looks at for every request."""

    message_bytes_max: int
    stamps_append_time: bool
    in_sync_min: int
    lag_ms_max: int
    lag_messages_max: int | None
    validates_records: bool

    @classmethod
    def of(cls, config: TopicConfig, replication_factor: int) -> TopicRules:
        """From a configuration that is complete and has been checked."""
        in_sync_min = config.get("min.insync.replicas")
        lag_messages_max = int(config["replica.lag.max.messages"])
        return cls(
            message_bytes_max=int(config["max.message.bytes"]),
            stamps_append_time=config["message.timestamp.type"] == "LogAppendTime",
            in_sync_min=in_sync_min
            if isinstance(in_sync_min, int) and in_sync_min > 0
            else replication_factor // 2 + 1,
            lag_ms_max=int(config["replica.lag.max.ms"]),
            lag_messages_max=lag_messages_max if lag_messages_max > 0 else None,
            validates_records=config.get("validate.records") in (1, "true"),
        )

    def validated(self, body: Body) -> list[Batch]:
        """The batches of a produced body, each sound. Nothing is copied.

        Raises ``CorruptBatch``, ``RecordTooLarge``, ``InvalidRecord``, and ``InvalidRequest`` for an
        empty body.
        """
        buffers = (body,) if isinstance(body, bytes | bytearray | memoryview) else body
        batches = [batch for buffer in buffers for batch in split_batches(buffer)]
        if not batches:
            raise InvalidRequest("the body holds no batch; send at least one", field="body")
        for batch in batches:
            validate_produced(
                batch, bytes_max=self.message_bytes_max, allow_append_time=self.stamps_append_time
            )
            if self.validates_records:
                _check_records(batch)
        return batches


def _check_records(batch: Batch) -> None:
    """Open the batch, as ``validate.records`` asks: its records must be what the header says."""
    records = read_records(batch)
    if [record.offset for record in records] != list(range(batch.header.record_count)):
        raise CorruptBatch(
            f"records: {len(records)} are there, and their offsets must count from 0 to "
            f"{batch.header.last_offset_delta}"
        )
