"""Repairs one damaged replica from the other logs of its group, without an operator.

Decides: which peer's entries are right, and when this replica may vote again. Leaves to
others: finding the damage (``verify``), writing files (``segment_writer``), when a repair is tried
(``scheduler``), what a peer sends (``service``).

Four rules, each a consequence of Raft's own:

1. *By an anchor.* Below the newest entry that this log is known to have had durably (its durable end, or what
   the epochs file covers), every peer with that entry has an equal log (Log Matching). Any such peer will do.
2. *By a leader.* Entries without an anchor, or with an anchor that no peer has, are replaced by the log of a
   leader. Its term must be at least the newest term in which this replica may have voted or acknowledged: a
   follower takes appends from such leaders only. The leader has all entries that were committed in earlier
   terms.
3. *By all voters.* A slot that is lost may have held a vote. All other voters report the newest term that
   they know. This replica gave no vote in a later term: the candidate would be one of these voters and would
   know that term. This replica continues in the newest term, with its vote given to itself. A peer that has
   lost its own term, too, reports the term of its log; then a thousand terms are skipped.
4. *Full resync.* If no log has the entries, because the other logs begin later, or if only this disk had the
   lost data, the log is not repaired. The whole log is replaced by a leader's log, from its start, by rule 2.
   In the same way a follower that lags far behind receives a snapshot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec

from raftlog.core.ready import HardState
from raftlog.errors import CorruptBatch, LogCorrupt, NotLeader, RaftlogError
from raftlog.node.blocking import RunBlocking, ToItsEnd
from raftlog.node.group_host import GroupHost
from raftlog.records.batch import Batch
from raftlog.repair.donor import hard_state_in, leader_of, members_told, owed
from raftlog.repair.full_resync import FullResync
from raftlog.repair.segment_writer import (
    Lacking,
    NewSegment,
    SegmentWriter,
    clear_sidecars,
    end_doubt,
    forget_from,
    plan,
    settle,
)
from raftlog.repair.service import SERVICE, Ask, RepairService, Told, voters_in_files
from raftlog.repair.target import CannotRepair, NeedsFullResync, NeedsOperator, RepairTarget
from raftlog.repair.verify import MissingRange, VerifyReport, examine
from raftlog.storage.batch_search import Run
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.members import MEMBERS_NAME, replace_members
from raftlog.storage.state_files import is_state_known
from raftlog.types import EntryId, Index, NodeId, Term

_log = logging.getLogger("raftlog.repair")

CALL_TIMEOUT_MS: Final = 5000
ROUNDS_MAX: Final = 6  # a round that repairs nothing ends the repair
FORGOTTEN_TERMS: Final = 1000  # more than any number of elections that all members have forgotten


@dataclass(slots=True)
class RepairCounts:
    """Counters of repairs, for metrics."""

    replicas_repaired: int = 0
    bytes_fetched: int = 0
    attempts_failed: int = 0


@dataclass(slots=True)
class Repairer:
    """The repairs of one broker. For the event loop's thread; disk work goes to ``run_blocking``."""

    host: GroupHost
    filesystem: Filesystem
    run_blocking: RunBlocking
    service: RepairService
    bytes_per_s: int = 0  # the rate of fetching; 0: no limit
    counts: RepairCounts = field(default_factory=RepairCounts)

    def __post_init__(self) -> None:
        self.run_blocking = ToItsEnd(self.run_blocking)

    async def repair(self, repair_target: RepairTarget) -> None:
        """Repair a replica; return once its files are whole. Raises ``CannotRepair`` and ``OSError``."""
        for left in reversed(range(ROUNDS_MAX + 1)):
            seen = await self.run_blocking(lambda: examine(self.filesystem, repair_target.directory))
            if seen.is_clean:
                self.service.forget(repair_target.directory)
                self.counts.replicas_repaired += 1
                return
            self.service.remember(seen)  # peers may need the sound entries of this replica
            if not left:
                raise NeedsOperator("the files are damaged again after each repair; replace the disk")
            try:
                await self._improve(repair_target, seen, is_last_try=left == 1)
            except RaftlogError as error:
                raise CannotRepair(f"a peer could not help: {error}") from error

    async def _improve(self, repair_target: RepairTarget, seen: VerifyReport, *, is_last_try: bool) -> None:
        try:
            if seen.state.is_given_up or is_last_try:
                raise NeedsFullResync("the log is still damaged after each repair")
            await self._repair_once(repair_target, seen)
        except NeedsFullResync as reason:
            await self._resync_fully(repair_target, seen, str(reason))

    async def _change(self, seen: VerifyReport, work: Callable[[], None]) -> None:
        """Write files with ``work``.

        Earlier answers to peers about these files no longer count afterwards.
        """
        self.service.forget(seen.directory)
        try:
            await self.run_blocking(work)
        finally:
            self.service.forget(seen.directory)

    async def _repair_once(self, repair_target: RepairTarget, seen: VerifyReport) -> None:
        repair_target, told = await self._ask_everybody(repair_target, seen)
        await self.run_blocking(lambda: clear_sidecars(self.filesystem, seen))
        if seen.state.log_start > 0 and seen.doubt is not None and not seen.state.hard_state.term:
            raise NeedsFullResync(f"{seen.doubt}, so the start of the log is unknown")
        if any(damage.path.endswith(f"/{MEMBERS_NAME}") for damage in seen.damages):
            known = members_told(seen, told)
            await self._change(seen, lambda: replace_members(self.filesystem, seen.directory, known))
        anchored = [hole for hole in seen.holes if _is_anchored(hole, seen.anchor)]
        if anchored:
            if await self._fill(repair_target, seen, anchored, told):
                return
            first = anchored[0].first
        elif seen.holes:
            first = seen.holes[0].first
        elif seen.doubt is not None:
            term, margin = self._newest_term(repair_target, seen, told)
            own = seen.state.hard_state
            hard_state = HardState(Term(term + margin), self.host.node_id, own.is_rejoining)
            await self._change(seen, lambda: end_doubt(self.filesystem, seen, hard_state))
            return
        else:
            start = seen.state.log_start
            if not await self.run_blocking(lambda: is_state_known(self.filesystem, seen.directory, start)):
                raise NeedsFullResync(f"no state on this disk reaches {start}, where the log begins")
            return
        await self._take_from_leader(repair_target, seen, first, told)

    # Requests to peers.

    async def _ask_everybody(
        self, repair_target: RepairTarget, seen: VerifyReport
    ) -> tuple[RepairTarget, dict[NodeId, Told]]:
        """Ask all voters about their logs, and then voters that the answers name, until no new voter is
        named.
        """
        start = Index(seen.state.log_start - 1)
        question = Ask(group_id=repair_target.group_id, members_at=start)

        async def ask(peer: NodeId) -> Told | None:
            try:
                return (await self._ask(peer, question))[0]
            except RaftlogError:
                return None

        told: dict[NodeId, Told] = {}
        asked = {self.host.node_id}
        named = {
            *repair_target.peers,
            *await self.run_blocking(lambda: voters_in_files(self.filesystem, seen)),
        }
        while strangers := sorted(named - asked):
            answers = await asyncio.gather(*map(ask, strangers))
            told |= {
                peer: answer for peer, answer in zip(strangers, answers, strict=True) if answer is not None
            }
            asked |= {*strangers}
            named.update(*(answer.voters for answer in told.values()))
        return replace(repair_target, peers=tuple(sorted(named - {self.host.node_id}))), told

    async def _ask(self, peer: NodeId, ask: Ask) -> tuple[Told, memoryview]:
        head = msgspec.msgpack.encode(ask)
        answer, data = await self.host.calls.call(peer, SERVICE, head, timeout_ms=CALL_TIMEOUT_MS)
        return msgspec.msgpack.decode(answer, type=Told), data

    # Rule 1.

    async def _fill(
        self,
        repair_target: RepairTarget,
        seen: VerifyReport,
        holes: Sequence[MissingRange],
        told: dict[NodeId, Told],
    ) -> bool:
        """Fill holes below the anchor, file by file; return whether peers had all missing entries."""
        lacking = [Lacking(hole.first, hole.last) for hole in holes if hole.last is not None]
        for segment in plan(seen, lacking):
            if not await self._write(repair_target, seen, segment, told):
                return False
        return True

    async def _write(
        self, repair_target: RepairTarget, seen: VerifyReport, segment: NewSegment, told: dict[NodeId, Told]
    ) -> bool:
        writer = await self.run_blocking(lambda: SegmentWriter(self.filesystem, seen.directory, segment))
        for part in segment.parts:
            if isinstance(part, Run):
                await self.run_blocking(partial(writer.copy, part))
                continue
            is_fetched = False
            try:
                is_fetched = await self._fetch(repair_target, seen, writer, part, list(told))
            finally:
                if not is_fetched:
                    await self.run_blocking(writer.abandon)
            if not is_fetched:
                return False
        await self._change(seen, writer.finish)
        return True

    async def _fetch(
        self,
        repair_target: RepairTarget,
        seen: VerifyReport,
        writer: SegmentWriter,
        part: Lacking,
        peers: list[NodeId],
    ) -> bool:
        """Fetch missing entries from one peer after the other; after a broken link, keep the entries written
        so far.

        Returns whether all entries were fetched. A peer that is silent since its last answer may hold the
        anchor: as long as it is silent, no leader's log replaces the entries.
        """
        anchor = seen.anchor
        assert anchor is not None
        useless = 0
        silent: set[NodeId] = set()
        while writer.following <= part.last:
            if useless == len(peers):
                if silent:
                    raise CannotRepair(f"brokers {sorted(silent)} no longer answer")
                return False
            peer = peers[0]
            ask = Ask(
                group_id=repair_target.group_id,
                first=Index(writer.following),
                last=Index(part.last),
                anchor_term=anchor.term,
                anchor_index=anchor.index,
            )
            try:
                told, data = await self._ask(peer, ask)
                silent.discard(peer)
                batches = writer.checked(data, part.last) if told.is_held else []
            except CorruptBatch:
                batches = []
            except RaftlogError:
                silent.add(peer)
                batches = []
            if batches:
                await self._add(writer, batches)
                useless = 0
            else:
                peers.append(peers.pop(0))
                useless += 1
        return True

    async def _add(self, writer: SegmentWriter, batches: list[Batch]) -> None:
        await self.run_blocking(lambda: writer.add(batches))
        size = sum(len(batch.data) for batch in batches)
        self.counts.bytes_fetched += size
        if self.bytes_per_s:
            await asyncio.sleep(size / self.bytes_per_s)

    # Rule 2.

    async def _take_from_leader(
        self, repair_target: RepairTarget, seen: VerifyReport, first: int, told: dict[NodeId, Told]
    ) -> None:
        term, margin = self._newest_term(repair_target, seen, told)
        if margin:  # only a log that is given up also stores the term that it must avoid
            raise NeedsFullResync(f"{seen.holes[0]} are damaged, and the newest term is unknown")
        leader = leader_of(repair_target, told, term, f"{seen.holes[0]} are damaged")
        runs = [run for run in seen.runs if run.last < first]
        while True:
            before = _entry_before(seen, runs, first)
            ask = Ask(
                group_id=repair_target.group_id,
                first=Index(first),
                last=Index(first - 1),
                previous_term=before,
            )
            answer, _ = await self._ask(leader, ask)
            if answer.is_held or not runs:
                break
            first = runs.pop().first  # the logs differ before this index: a leader would go back, too
        if not answer.is_leader or answer.term < term:
            raise CannotRepair(f"broker {leader} no longer leads")
        if not answer.is_held or answer.first > first:
            raise NeedsFullResync(f"broker {leader}, the leader, no longer has the missing entries")
        hard_state = hard_state_in(Term(max(term, answer.term)), seen, self.host.node_id)
        await self._copy_leader(repair_target, seen, runs, _Lead(leader, answer, first, hard_state))
        try:
            await self._change(seen, lambda: settle(self.filesystem, seen, hard_state, answer.last))
        except LogCorrupt as error:
            raise CannotRepair(str(error)) from error

    async def _copy_leader(
        self, repair_target: RepairTarget, seen: VerifyReport, runs: list[Run], lead: _Lead
    ) -> None:
        base = max((base for base in seen.bases if base <= lead.first), default=lead.first)
        kept = [run for run in runs if run.first >= base]
        segment = NewSegment(base, tuple(kept))
        writer = await self.run_blocking(lambda: SegmentWriter(self.filesystem, seen.directory, segment))
        try:
            for run in kept:
                await self.run_blocking(partial(writer.copy, run))
            await self._fetch_from_leader(
                repair_target, seen, writer, lead, _entry_before(seen, runs, lead.first)
            )
        except (RaftlogError, CorruptBatch) as error:
            await self.run_blocking(writer.abandon)
            raise CannotRepair(f"the leader did not send valid entries: {error}") from error
        last = writer.following - 1
        await self._change(seen, lambda: forget_from(self.filesystem, seen, base, lead.hard_state, last))
        await self._change(seen, writer.finish)

    async def _fetch_from_leader(
        self,
        repair_target: RepairTarget,
        seen: VerifyReport,
        writer: SegmentWriter,
        lead: _Lead,
        before: Term,
    ) -> None:
        """Fetch all entries that this replica may have acknowledged; later entries arrive by appends."""
        last = owed(seen, lead.answer)
        while writer.following <= last:
            ask = Ask(
                group_id=repair_target.group_id,
                first=Index(writer.following),
                last=lead.answer.last,
                previous_term=Term(writer.term) if writer.term else before,
            )
            told, data = await self._ask(lead.leader, ask)
            if not told.is_held or not told.is_leader or told.term != lead.answer.term:
                raise NotLeader(f"broker {lead.leader} no longer leads")
            await self._add(writer, writer.checked(data, lead.answer.last))

    # Rule 4.

    async def _resync_fully(self, repair_target: RepairTarget, seen: VerifyReport, reason: str) -> None:
        repair_target, told = await self._ask_everybody(repair_target, seen)
        if not repair_target.peers:
            raise NeedsOperator(f"{reason}, and there is no other replica; restore its files or delete it")
        term, margin = self._newest_term(repair_target, seen, told)
        leader = leader_of(repair_target, told, term, reason)
        answer = told[leader]
        _log.warning(
            "%s: %s; fetching the whole log of broker %d, from %d on",
            seen.directory,
            reason,
            leader,
            answer.first,
        )
        ask, calls = partial(self._ask, leader), self.host.calls
        me, files = self.host.node_id, self.filesystem
        anew = FullResync(me, repair_target.group_id, files, self.run_blocking, calls, ask, self._add)
        hard_state = hard_state_in(Term(max(term, answer.term) + margin), seen, me)
        replace_log = await anew.fetch(seen, leader, answer, owed(seen, answer))
        await self._change(seen, lambda: replace_log(hard_state, term))

    # Rule 3.

    def _newest_term(
        self, repair_target: RepairTarget, seen: VerifyReport, told: dict[NodeId, Told]
    ) -> tuple[Term, int]:
        """The newest term in which this replica may have voted, and how many further terms to skip."""
        own = max(seen.state.hard_state.term, seen.runs[-1].term if seen.runs else 0)
        if seen.state.is_given_up:
            own = seen.state.durable_end.last.term  # its hard state may be beyond the skipped terms
        if seen.doubt is None:
            return Term(own), 0
        silent = [peer for peer in repair_target.peers if peer not in told]
        if silent:
            raise CannotRepair(
                f"{seen.doubt}, so a vote may be forgotten: brokers {silent} must say which terms they know"
            )
        is_sure = all(answer.is_sure for answer in told.values()) and bool(told)
        newest = max([own, *(answer.term for answer in told.values())])
        return Term(newest), 0 if is_sure else FORGOTTEN_TERMS


@dataclass(frozen=True, slots=True)
class _Lead:
    """A leader whose log replaces this log from ``first`` on, and the hard state to store with that log."""

    leader: NodeId
    answer: Told
    first: int
    hard_state: HardState


def _is_anchored(hole: MissingRange, anchor: EntryId | None) -> bool:
    return anchor is not None and hole.last is not None and hole.last <= anchor.index


def _entry_before(seen: VerifyReport, runs: Sequence[Run], first: int) -> Term:
    return Term(runs[-1].term) if runs and runs[-1].last == first - 1 else seen.state.before
