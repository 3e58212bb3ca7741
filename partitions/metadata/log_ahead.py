"""The metadata as they will be if all is committed that stands in the log here.

A broker that starts knows only of a part of its log that it is committed, and may need votes to learn more:
of brokers whose addresses stand in the rest. So addresses count as memberships do, from the moment that
they stand in the log. Nothing else may be done by this image.
"""

from __future__ import annotations

from typing import Final

from partitions.metadata.image import MetadataImage
from partitions.metadata.machine import MetadataMachine
from raftlog.records.batch import split_batches
from raftlog.storage.log_storage import AppliedLog
from raftlog.types import Index

READ_BYTES: Final = 1 << 20


def image_ahead(log: AppliedLog) -> MetadataImage:
    """Waits for the disk. Raises ``LogCorrupt`` and ``OSError``."""
    machine = MetadataMachine()
    index, state = log.load_checkpoint() or (Index(-1), b"")
    machine.restore(state)
    following = max(index + 1, log.first_index)
    while following <= log.last_index:
        read = log.read(Index(following), log.last_index, bytes_max=READ_BYTES)
        for batch in split_batches(read.read()):
            if batch.header.last_offset >= following:
                machine.apply(batch)
                following = batch.header.last_offset + 1
    return machine.image
