"""Deletes the records of a partition below an offset, on request.

Decides: which offsets are refused, and when the deletion is acknowledged. Leaves to others: the state
(``log_start``), refusing readers (``reads``), and freeing disk space (``raftlog.hosting.retention``).

The leader answers once the new log start is committed and applied: each later leader has the log start, and a
deposed leader acknowledges no deletion. The log start never falls, so a request may be repeated.
"""

from __future__ import annotations

import asyncio

from partitions.metadata import topic_config
from partitions.replica.machine import PartitionMachine
from partitions.replica.reads import Reads
from partitions.replica.serving import Serving
from partitions.values import TopicConfig
from raftlog.errors import CommitUnknown, Conflict, InvalidRequest
from raftlog.node.deadline import deadline_in
from raftlog.records.control import log_start_batch
from raftlog.types import Offset


class Deletion:
    """Deletes records of one replica while the replica leads."""

    def __init__(self, serving: Serving, reads: Reads, machine: PartitionMachine) -> None:
        self._serving = serving
        self._reads = reads
        self._machine = machine

    async def delete_before(
        self, offset: Offset, config: TopicConfig, *, now_ms: int, timeout_ms: int
    ) -> Offset:
        """Delete all records below ``offset``; return the new log start offset, which may be above
        ``offset``.

        Raises with nothing done: ``InvalidRequest``, ``Conflict`` for an offset in an open transaction or
        above the archived offset, ``NotLeader``, ``NoLeader``, ``TopicNotFound``, ``Overloaded``,
        ``StorageFull``. Raises ``CommitUnknown``. A call may be repeated.
        """
        deadline = deadline_in(timeout_ms)
        serving = self._serving
        serving.check_leads()
        if not topic_config.deletes(config):
            raise InvalidRequest(
                f"topic {serving.target.topic} is compacted: the newest record of each key stays; write "
                "tombstones, or set cleanup.policy=compact,delete",
                field="topic",
            )
        await serving.ready(deadline)
        await serving.confirm()  # a deposed leader may know an older start, and an older end
        start = max(offset, self._reads.log_start_offset)  # not replicated if an earlier version deleted
        if start > self._machine.log_start.offset:
            self._check_end(offset)
            self._check_archived(offset, config)
            batch = log_start_batch(start, timestamp_ms=now_ms)
            proposal = serving.group.propose([batch], frees_room=True)
            try:
                async with asyncio.timeout_at(deadline):
                    await asyncio.shield(proposal.outcome)
            except TimeoutError:
                raise CommitUnknown(f"the deletion in {serving.target} is not committed yet; retry") from None
        return self._reads.log_start_offset

    def _check_end(self, offset: Offset) -> None:
        """Raise an error if ``offset`` is above the end, or records below it are in an open transaction."""
        end, stable = self._reads.high_watermark, self._reads.last_stable_offset
        if offset > end:
            raise InvalidRequest(
                f"offset is {offset}, but {self._serving.target} ends at {end}; send at most {end}",
                field="offset",
            )
        if offset > stable:
            oldest = self._machine.transactions.oldest
            writer = "a transaction" if oldest is None else f"a transaction of producer {oldest.producer_id}"
            raise Conflict(
                f"offset is {offset}, but {writer} is open in {self._serving.target} from {stable} on; send "
                f"at most {stable}, or end the transaction first"
            )

    def _check_archived(self, offset: Offset, config: TopicConfig) -> None:
        archived = self._machine.archived.offset
        if topic_config.requires_archive(config) and offset > archived:
            raise Conflict(
                f"offset is {offset}, but {self._serving.target} is archived up to {archived}; send at most "
                f"{archived}, archive the records first, or set retention.archive.required=false"
            )
