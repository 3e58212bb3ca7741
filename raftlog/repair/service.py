"""Answers requests of peers whose replica is damaged: entries of the group's log, and terms.

Decides: which entries may be sent. Entries of equal index and term are equal in every log of a group (Raft
5.3). So a log that holds an *anchor*, an entry that the asking replica is known to have had, has all earlier
entries as the asking replica had them. This includes the log of a replica that is itself damaged elsewhere:
its sound parts are read from its files. Without an anchor only a leader sends entries, as with an append.
Every checksum is checked before bytes are sent.

Leaves to others: the use of the answer (``repairer``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from raftlog.core.membership import MembershipEntry
from raftlog.errors import CorruptBatch, InvalidRequest, LogCorrupt, OffsetOutOfRange
from raftlog.node.blocking import RunBlocking
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost
from raftlog.node.reading import LogChanged, read_batches
from raftlog.node.rpc import decode_body
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.records.compaction import cut_gap
from raftlog.repair.verify import VerifyReport, examine
from raftlog.storage.batch_walk import BatchDamaged, walk_batches
from raftlog.storage.epochs import load_epochs
from raftlog.storage.filesystem import Buffer, Filesystem
from raftlog.storage.members import encode_entries, load_members, membership_in
from raftlog.types import EntryId, GroupId, Index, NodeId, Term

SERVICE: Final = Service("repair", CallClass.REPAIR)
NO_INDEX: Final = Index(-2)
UNKNOWN_TERM: Final = Term(-1)

Places = dict[tuple[str, int], int]
"""For each file and offset, the position at which the batch with this base offset begins."""


class Ask(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A request for entries ``first..last``; with ``first > last``, only for the state and the indexes of a
    log.
    """

    group_id: GroupId
    first: Index = Index(0)
    last: Index = Index(-1)
    previous_term: Term = Term(0)  # of the entry just before ``first``, for a leader
    anchor_term: Term = Term(0)
    anchor_index: Index = NO_INDEX  # without an anchor only a leader answers
    members_at: Index = NO_INDEX  # also requests the membership in force at this index


class Told(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A peer's answer about its log. ``is_sure``: the peer has lost no term and no vote."""

    term: Term
    is_sure: bool
    is_leader: bool
    first: Index
    last: Index
    is_held: bool = False  # whether the log holds the anchor, or the previous entry
    members: bytes = b""  # in the format of the members file; empty if unknown
    voters: tuple[NodeId, ...] = ()  # of the membership in force in the log; empty if unknown
    before: Term = UNKNOWN_TERM  # of the entry just before ``first``


# The answer for a removed replica: in terms after that of the leader that committed its removal it has won no
# election, and the other members know all earlier terms.
NO_REPLICA: Final = Told(term=Term(0), is_sure=True, is_leader=False, first=Index(0), last=Index(-1))


@dataclass(slots=True)
class RepairService:
    """The answers of one broker.

    ``directory_of`` returns the directory of a replica that is on this broker and not open. It returns None
    only if it is known that the replica was never here, or was deleted with its leader's permit, and raises
    ``RaftlogError`` while that is unknown.
    """

    host: GroupHost
    filesystem: Filesystem
    run_blocking: RunBlocking
    directory_of: Callable[[GroupId], str | None]
    _seen: dict[str, VerifyReport] = field(default_factory=dict)
    _places: Places = field(default_factory=dict)
    _changes: dict[str, int] = field(default_factory=dict)  # the number of changes of each directory

    def offer(self) -> None:
        """Begin to answer the requests of peers."""
        self.host.calls.serve(SERVICE, self._serve)

    def forget(self, directory: str) -> None:
        """Discard earlier and running examinations of a directory, whose files are changing or
        have changed.
        """
        self._seen.pop(directory, None)
        self._places.clear()
        self._changes[directory] = self._changes.get(directory, 0) + 1

    def remember(self, seen: VerifyReport) -> None:
        """Answer requests from this report, until the replica's files change."""
        self._seen[seen.directory] = seen

    @property
    def _bytes_max(self) -> int:
        return self.host.calls.frame_limits.repair_bytes_max

    async def _serve(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, Ask)
        group = self.host.groups.get(ask.group_id)
        if group is not None and group.stopped is None:
            told, data = await _from_group(group, ask, self._bytes_max)
        else:
            told, data = await self._from_files(ask)
        return msgspec.msgpack.encode(told), data

    async def _from_files(self, ask: Ask) -> tuple[Told, list[Buffer]]:
        directory = self.directory_of(ask.group_id)
        if directory is None:
            return NO_REPLICA, []
        seen = self._seen.get(directory)
        if seen is None:
            changes = self._changes.get(directory, 0)
            found = await self.run_blocking(lambda: examine(self.filesystem, directory))
            if self._changes.get(directory, 0) != changes:
                raise InvalidRequest(f"the files of group {ask.group_id} have just changed; ask again")
            seen = found
            if ask.group_id not in self.host.groups:  # otherwise it is about to be closed, which changes it
                self._seen[directory] = found
        is_held = ask.anchor_index != NO_INDEX and seen.holds(EntryId(ask.anchor_term, ask.anchor_index))
        told = Told(
            term=Term(max(seen.state.hard_state.term, seen.runs[-1].term if seen.runs else 0)),
            is_sure=seen.doubt is None and not seen.state.hard_state.is_rejoining,
            is_leader=False,
            first=seen.state.log_start,
            last=Index(seen.last),
            is_held=is_held,
            members=await self.run_blocking(lambda: _members_in_files(self.filesystem, seen, ask.members_at)),
            voters=await self.run_blocking(lambda: self._voters_in(seen, ask)),
            before=seen.state.before,
        )
        if not is_held:
            return told, []
        return told, await self.run_blocking(
            lambda: _from_runs(self.filesystem, seen, ask, self._places, self._bytes_max)
        )

    def _voters_in(self, seen: VerifyReport, ask: Ask) -> tuple[NodeId, ...]:
        """The voters that a closed log names, for a request of state and indexes; empty for requests of
        entries.

        Reading the voters is expensive.
        """
        return voters_in_files(self.filesystem, seen) if ask.members_at != NO_INDEX else ()


async def _from_group(group: RaftGroup[object], ask: Ask, bytes_max: int) -> tuple[Told, list[Buffer]]:
    log = group.log
    if ask.anchor_index != NO_INDEX:
        is_held = _holds(group, ask.anchor_index, ask.anchor_term)
    else:
        is_held = group.is_leader and _holds(group, Index(ask.first - 1), ask.previous_term)
    told = Told(
        term=group.term,
        is_sure=not group.is_rejoining,
        is_leader=group.is_leader,
        first=log.first_index,
        last=log.last_index,
        is_held=is_held,
        members=_members_of(group, ask.members_at),
        voters=tuple(sorted(group.membership.all_voters)),
        before=log.term_at(Index(log.first_index - 1)),
    )
    last = min(ask.last, log.last_index)
    if not is_held or not log.first_index <= ask.first <= last:
        return told, []
    try:
        found = await read_batches(log, ask.first, Index(last), bytes_max=bytes_max)
    except (LogCorrupt, OSError) as error:
        group.stop(error)
        raise InvalidRequest(f"the log of group {ask.group_id} cannot be read: {error}") from None
    except LogChanged:
        found = None
    if found is None or group.term != told.term or group.stopped is not None:
        raise InvalidRequest(f"the log of group {ask.group_id} has just changed; ask again")
    return told, [found.data]


def _members_of(group: RaftGroup[object], index: Index) -> bytes:
    """The encoded members at a committed index that the log reaches; empty if they are unknown."""
    if not group.log.first_index - 1 <= index <= group.commit_index:
        return b""
    members = group.membership_at(index)
    return encode_entries([MembershipEntry(index, members)]) if members.voters else b""


def _members_in_files(filesystem: Filesystem, seen: VerifyReport, index: Index) -> bytes:
    """The encoded members at the log start of a closed log; empty for another index, or if they
    are unknown.
    """
    if index != seen.state.log_start - 1:
        return b""
    try:
        found = load_members(filesystem, seen.directory).base(seen.state.log_start)
    except LogCorrupt:
        return b""
    return b"" if found is None else encode_entries([MembershipEntry(index, found)])


def voters_in_files(filesystem: Filesystem, seen: VerifyReport) -> tuple[NodeId, ...]:
    """The voters of the newest sound membership in the files of a closed log; empty without a membership."""
    try:
        newest = load_members(filesystem, seen.directory).base(seen.state.log_start)
    except LogCorrupt:
        newest = None
    known = load_epochs(filesystem, seen.directory).memberships if seen.covers >= 0 else []
    if known:
        newest = known[-1].membership
    for run in seen.runs:
        if run.last < seen.covers:
            continue
        file = filesystem.open(run.path)
        try:
            for _, batch in walk_batches(file, run.position, run.end):
                if batch.base_offset >= seen.covers:
                    newest = membership_in(batch) or newest
        except (BatchDamaged, CorruptBatch):
            pass  # the file has been damaged since it was examined
        finally:
            file.close()
    return () if newest is None else tuple(sorted(newest.all_voters))


def _holds(group: RaftGroup[object], index: Index, term: Term) -> bool:
    try:
        return group.log.term_at(index) == term
    except OffsetOutOfRange:
        return False


def _from_runs(
    filesystem: Filesystem, seen: VerifyReport, ask: Ask, places: Places, bytes_max: int
) -> list[Buffer]:
    """Read whole batches from ``first`` on, up to the end of one sound run, at most about ``bytes_max``."""
    run = next((run for run in seen.runs if run.first <= ask.first <= run.last), None)
    if run is None:
        return []
    file = filesystem.open(run.path)
    data: list[Buffer] = []
    size = 0
    try:
        start = places.pop((run.path, ask.first), run.position)
        for position, found in walk_batches(file, start, run.end):
            batch = cut_gap(found, ask.first, ask.last)
            if size > bytes_max:
                places[run.path, batch.base_offset] = position  # the next request begins here
                break
            if batch.last_offset > ask.last:
                break
            if batch.base_offset >= ask.first:
                data.append(bytes(batch.data))
                size += len(batch.data)
    except BatchDamaged:
        return data  # the file has been damaged since it was examined
    finally:
        file.close()
    return data
