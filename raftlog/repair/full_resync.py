"""Fetches a leader's whole log, to replace a log that cannot be repaired.

Decides: what is requested and in which order, and when only the state is missing. Leaves to others: the
choice of the leader, the last index and the term (``repairer``), and the files (``storage.new_log``).

All data is fetched and checked before any part of the old log is removed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from raftlog.core.membership import NOBODY, MembershipEntry
from raftlog.core.ready import FetchSnapshot, HardState
from raftlog.errors import CorruptBatch
from raftlog.node.blocking import RunBlocking
from raftlog.node.group.snapshot_transfer import SnapshotTransfer
from raftlog.node.rpc import Calls
from raftlog.records.batch import Batch
from raftlog.repair.new_log import Beginning, NewLog
from raftlog.repair.segment_writer import SegmentWriter
from raftlog.repair.service import NO_INDEX, UNKNOWN_TERM, Ask, Told
from raftlog.repair.target import CannotRepair
from raftlog.repair.verify import VerifyReport
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.members import decode_entries, encode_entries
from raftlog.storage.state_files import StateFiles, is_state_known
from raftlog.types import EntryId, GroupId, Index, NodeId, Term

Replace = Callable[[HardState, Term], None]
"""A function that installs the fetched log with this hard state; see ``NewLog.replace``. It blocks."""


class Adds(Protocol):
    """A function that writes fetched batches at the pace of repairs."""

    def __call__(self, writer: SegmentWriter, batches: list[Batch], /) -> Awaitable[None]:
        """Return when the batches are in the file, so that the next batches may be requested."""


@dataclass(frozen=True, slots=True)
class FullResync:
    """The full resync of one replica. ``ask`` sends a request to its leader."""

    node_id: NodeId
    group_id: GroupId
    filesystem: Filesystem
    run_blocking: RunBlocking
    calls: Calls
    ask: Callable[[Ask], Awaitable[tuple[Told, memoryview]]]
    add: Adds

    async def fetch(self, seen: VerifyReport, leader: NodeId, answer: Told, last: int) -> Replace:
        """Fetch the log of the leader that sent ``answer``, up to ``last``; return the function that installs
        it.

        Raises ``CannotRepair``.
        """
        begin = await self._beginning(leader, answer)
        if await self.run_blocking(lambda: _lacks_only_a_state(self.filesystem, seen, begin)):
            return lambda hard_state, term: _keep_state(self.filesystem, seen, begin)
        log = NewLog(self.filesystem, seen.directory, begin)
        is_whole = False
        try:
            while log.following <= last:
                writer = await self.run_blocking(log.writer)
                following = Index(log.following)
                end, before = answer.last, Term(log.term)  # a batch of the leader need not end at ``last``
                _, data = await self._ask_leader(leader, answer, following, end, before)
                batches = writer.checked(data, end)
                await self.add(writer, [batch for batch in batches if batch.base_offset <= last])
            is_whole = True
        except CorruptBatch as error:
            raise CannotRepair(f"the leader sent invalid entries: {error}") from error
        finally:
            if not is_whole:
                await self.run_blocking(log.abandon)
        return partial(log.replace, seen)

    async def _ask_leader(
        self,
        leader: NodeId,
        answer: Told,
        first: Index,
        last: int,
        before: Term,
        members_at: Index = NO_INDEX,
    ) -> tuple[Told, memoryview]:
        ask = Ask(
            group_id=self.group_id,
            first=first,
            last=Index(last),
            previous_term=before,
            members_at=members_at,
        )
        told, data = await self.ask(ask)
        if not told.is_leader or told.term != answer.term:
            raise CannotRepair(f"broker {leader} no longer leads")
        if not told.is_held:
            raise CannotRepair(f"the log of broker {leader} now begins later than {first}")
        return told, data

    async def _beginning(self, leader: NodeId, answer: Told) -> Beginning:
        start, before = answer.first, answer.before
        if before == UNKNOWN_TERM:
            raise CannotRepair(f"broker {leader} runs an older release and does not say how its log begins")
        place = EntryId(before, Index(start - 1))
        told, _ = await self._ask_leader(leader, answer, start, place.index, before, place.index)
        if start == 0:
            return Beginning(start=start, before=before, members=told.members or _NOBODY, state=b"")
        if not told.members:
            raise CannotRepair(f"broker {leader} does not know the members at {place.index}")
        there = decode_entries(memoryview(told.members))[-1].membership
        transfer = SnapshotTransfer(self.node_id, self.group_id, self.calls)
        state = await transfer.fetch(FetchSnapshot(leader, place, there))
        return Beginning(start=start, before=before, members=told.members, state=state)


_NOBODY: Final = encode_entries([MembershipEntry(Index(-1), NOBODY)])  # the log itself names its members


def _lacks_only_a_state(filesystem: Filesystem, seen: VerifyReport, begin: Beginning) -> bool:
    """Whether the log lacks only the state at its start.

    Then the log is whole, and agrees with the leader's log up to the start of the leader's log.
    """
    start, own = begin.start, seen.state.log_start
    if seen.holes or seen.doubt is not None or seen.state.is_given_up or not own <= start <= seen.last + 1:
        return False
    is_ours = start == own or seen.holds(begin.end)
    return is_ours and not is_state_known(filesystem, seen.directory, own)


def _keep_state(filesystem: Filesystem, seen: VerifyReport, begin: Beginning) -> None:
    StateFiles(filesystem, seen.directory).save(begin.end, begin.state)
