"""The replica of the metadata log as a tenant of a broker's hosting.

Decides: that the log is opened only once it is known whether the cluster exists (``first_start``). Leaves to
others: membership in the metadata group (``metadata.service``). While the log is repaired, the broker uses
the newest metadata that it has seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from partitions.metadata.image import MetadataImage
from partitions.metadata.machine import MetadataMachine
from partitions.metadata.service import Controller
from raftlog.hosting.opener import LogOpener
from raftlog.hosting.tenant import SnapshotRetention
from raftlog.node.blocking import RunBlocking
from raftlog.records.batch import split_batches
from raftlog.storage.log_storage import AppliedLog
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import METADATA_GROUP, Index, NodeId

METADATA_LOG: Final = LogSettings(segment_bytes=1 << 20)
METADATA_RETENTION: Final = SnapshotRetention(log_bytes_max=4 << 20, entries_kept=1000)
READ_BYTES: Final = 1 << 20


class HostedMetadata:
    """``Tenant`` of the metadata log.

    ``configured`` are all other brokers of the settings; ``is_rejoining`` (``FirstStart.is_over``) is called
    before the log is opened.
    """

    group_id = METADATA_GROUP
    name = "the metadata log"
    is_leaving = False
    retention = METADATA_RETENTION
    compaction = None

    def __init__(
        self,
        controller: Controller,
        is_rejoining: Callable[[], Awaitable[bool]],
        opener: LogOpener,
        run_blocking: RunBlocking,
        directory: str,
        configured: tuple[NodeId, ...],
        stands_in_log: Callable[[MetadataImage], None],
    ) -> None:
        """``stands_in_log`` is called each time the log is opened, with the result of ``image_ahead``."""
        self.directory = directory
        self._stands_in_log = stands_in_log
        self._configured = configured
        self._controller = controller
        self._is_rejoining = is_rejoining
        self._opener = opener
        self._run_blocking = run_blocking

    @property
    def peers(self) -> tuple[NodeId, ...]:
        """The other voters in the local log's newest membership. Without a log: the configured brokers."""
        voters = self._controller.members.all_voters
        return tuple(sorted(voters - {self._controller.node_id})) if voters else self._configured

    async def open_log(self) -> SegmentedLog:
        """Open the metadata log; without a log, first wait until it is known whether the cluster exists."""
        is_rejoining = await self._is_rejoining()
        log, ahead = await self._run_blocking(lambda: self._open(is_rejoining))
        self._stands_in_log(ahead)
        return log

    def _open(self, is_rejoining: bool) -> tuple[SegmentedLog, MetadataImage]:
        log = self._opener.open(
            METADATA_GROUP,
            self.directory,
            METADATA_LOG,
            is_rejoining=is_rejoining,
            is_only=lambda: self._opener.was_only(METADATA_GROUP),
        )
        try:
            return log, image_ahead(log)
        except BaseException:
            log.close()
            raise

    def take_part(self, log: SegmentedLog) -> None:
        """Open the replica of the metadata group, as ``Controller.start`` describes."""
        self._controller.start(log)

    async def leave(self) -> None:
        """End the tasks of the controller, as ``Controller.leave`` describes."""
        await self._controller.leave()


def image_ahead(log: AppliedLog) -> MetadataImage:
    """The image after the whole local log, including its uncommitted part. Use this image for addresses only.

    A starting broker knows only a part of its log to be committed. To learn more it may need votes of brokers
    whose addresses are in the uncommitted part. So addresses count as soon as they are in the log, as
    memberships do. Waits for the disk. Raises ``LogCorrupt``, ``OSError``.
    """
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
