"""How long the metadata log gets: what led to an image that is kept need not be kept, too.

Decides: when a broker lets its metadata log begin later. The image stands beside the log where each segment
begins, so a broker that needs what is gone is sent that. Each broker decides for its own log.
"""

from __future__ import annotations

from typing import Final

from partitions.metadata.machine import Reply
from raftlog.node.group.raft_group import RaftGroup
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import Index

METADATA_LOG: Final = LogSettings(segment_bytes=1 << 20)
LOG_BYTES_MAX: Final = 4 << 20
ENTRIES_KEPT: Final = 1000  # so that brokers that are a little behind need no image


def is_long(group: RaftGroup[Reply]) -> bool:
    """Whether ``trim`` has something to do."""
    return group.log.size_bytes > LOG_BYTES_MAX


async def trim(group: RaftGroup[Reply]) -> None:
    """Let go of whole segments that are no longer needed."""
    await group.truncate_prefix(Index(group.applied_index - ENTRIES_KEPT))
