"""Rules of one topic for its batches and replicas, and the check of produced bodies.

Decides: the checks of a produce request that need no log: size, checksum, counts, attribute bits, and if
configured the records themselves. Leaves to others: sequences (``producers``), leadership and health
(``replica``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from partitions.values import TopicConfig
from raftlog.errors import InvalidRequest, RecordTooLarge
from raftlog.node.computing import computed
from raftlog.records.batch import Batch, Buffer, split_batches, validate_produced
from raftlog.records.reader import check_records, opens_fast

BATCHES_MAX: Final = 1_000  # of one body
BODY_DECOMPRESSED_BYTES_MAX: Final = 64 << 20
RECORDS_ON_LOOP_MAX: Final = 4_096  # checked on the event loop; more are checked in a thread

Body = Buffer | Sequence[Buffer]
"""Batches back to back, in one or several buffers; each batch is in one buffer."""


def batches_of(body: Body) -> list[Batch]:
    """Split a body into batches without checking their content. Raises ``CorruptBatch``."""
    buffers = (body,) if isinstance(body, bytes | bytearray | memoryview) else body
    batches: list[Batch] = []
    for buffer in buffers:
        batches += split_batches(buffer, count_max=BATCHES_MAX - len(batches))
    return batches


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """The settings of a topic that every request needs, as numbers and flags."""

    message_bytes_max: int
    stamps_append_time: bool
    in_sync_min: int
    lag_ms_max: int
    lag_records_max: int | None
    requires_keys: bool  # compaction keeps the newest record of each key
    opens_batches: bool  # to check keys or to validate records

    @classmethod
    def of(cls, config: TopicConfig, replication_factor: int) -> TopicRules:
        """The rules that follow from a complete, checked configuration."""
        in_sync_min = config.get("min.insync.replicas")
        lag_records_max = int(config["replica.lag.max.records"])
        validates_records = config.get("validate.records") in (1, "true")
        requires_keys = "compact" in str(config.get("cleanup.policy")).split(",")
        return cls(
            message_bytes_max=int(config["max.message.bytes"]),
            stamps_append_time=config["message.timestamp.type"] == "LogAppendTime",
            in_sync_min=in_sync_min
            if isinstance(in_sync_min, int) and in_sync_min > 0
            else replication_factor // 2 + 1,
            lag_ms_max=int(config["replica.lag.max.ms"]),
            lag_records_max=lag_records_max if lag_records_max > 0 else None,
            requires_keys=requires_keys,
            opens_batches=validates_records or requires_keys,
        )

    def validated(self, body: Body, *, in_transaction: bool = False) -> list[Batch]:
        """Split a produced body into batches and check each batch, without copying batches or decoding
        records.

        Raises ``CorruptBatch``, ``RecordTooLarge``, ``InvalidRecord``, and ``InvalidRequest`` for an empty
        body.
        """
        batches = batches_of(body)
        if not batches:
            raise InvalidRequest("the body has no batch; send at least one", field="body")
        for batch in batches:
            validate_produced(
                batch,
                bytes_max=self.message_bytes_max,
                allow_append_time=self.stamps_append_time,
                allow_transaction=in_transaction,
            )
        return batches

    def checks_fast(self, batches: Sequence[Batch]) -> bool:
        """Whether ``check_all`` takes only a few milliseconds."""
        return not self.opens_batches or opens_fast(batches, records_max=RECORDS_ON_LOOP_MAX)

    async def check_records(self, batches: Sequence[Batch]) -> None:
        """Run ``check_all``, in a thread if it takes long.

        Raises ``Overloaded`` if memory does not suffice.
        """
        await computed(partial(self.check_all, batches), is_short=self.checks_fast(batches))

    def check_all(self, batches: Sequence[Batch]) -> None:
        """Decode the batches, if ``validate.records`` or compaction requires it, and check their records.

        Raises ``CorruptBatch``, ``InvalidRecord`` for a missing key, and ``RecordTooLarge`` for a body with
        more than ``BODY_DECOMPRESSED_BYTES_MAX`` after decompression.
        """
        if not self.opens_batches:
            return
        total_bytes = 0
        for batch in batches:
            total_bytes += check_records(batch, requires_keys=self.requires_keys)
            if total_bytes > BODY_DECOMPRESSED_BYTES_MAX:
                raise RecordTooLarge(
                    f"the batches of the request have more than {BODY_DECOMPRESSED_BYTES_MAX} bytes after "
                    "decompression; send fewer at once",
                    limit_bytes=BODY_DECOMPRESSED_BYTES_MAX,
                )
