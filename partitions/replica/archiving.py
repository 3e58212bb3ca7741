"""Sets the offset up to which a partition is archived.

Decides: which offsets are refused, and when a new offset is acknowledged. Leaves to others: the state
(``archived``), and deleting archived records (``raftlog.hosting.retention``).

The leader answers once the entry with the offset is committed and applied. A lower offset changes nothing, so
an archiver may repeat its requests, and two archivers do not disturb each other. Only ``may_lower`` lowers
the offset, for an archive that has lost files.
"""

from __future__ import annotations

import asyncio

from partitions.replica.machine import PartitionMachine
from partitions.replica.reads import Reads
from partitions.replica.serving import Serving
from raftlog.errors import CommitUnknown, InvalidRequest
from raftlog.node.deadline import deadline_in
from raftlog.records.control import Archived, archived_batch
from raftlog.types import Offset


class Archiving:
    """Sets the archived offset of one replica while the replica leads."""

    def __init__(self, serving: Serving, reads: Reads, machine: PartitionMachine) -> None:
        self._serving = serving
        self._reads = reads
        self._machine = machine

    async def set_archived(self, archived: Archived, *, now_ms: int, timeout_ms: int) -> Offset:
        """Set the archived offset; return the offset in force afterwards.

        Raises with nothing done: ``InvalidRequest`` above the last stable offset, ``NotLeader``,
        ``NoLeader``, ``TopicNotFound``, ``Overloaded``, ``StorageFull``. Raises ``CommitUnknown``. A call may
        be repeated.
        """
        deadline = deadline_in(timeout_ms)
        serving, state = self._serving, self._machine.archived
        serving.check_leads()
        await serving.ready(deadline)
        await serving.confirm()  # a deposed leader may know an older offset, and an older end
        end = self._reads.last_stable_offset
        if archived.offset > end:
            raise InvalidRequest(
                f"offset is {archived.offset}, but the committed records of {serving.target} end at {end}; "
                f"send at most {end}",
                field="offset",
            )
        if archived.offset > state.offset or (archived.may_lower and archived.offset < state.offset):
            # The entry lets retention free the disk, so it may use the disk's reserve.
            batch = archived_batch(archived, timestamp_ms=now_ms)
            proposal = serving.group.propose([batch], frees_room=True)
            try:
                async with asyncio.timeout_at(deadline):
                    await asyncio.shield(proposal.outcome)
            except TimeoutError:
                raise CommitUnknown(
                    f"the archived offset of {serving.target} is not committed yet; retry"
                ) from None
        return state.offset
