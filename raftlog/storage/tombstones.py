"""What deleted replicas have promised: a later life of a replica on this broker begins with it.

``<data>/tombstones/<group id>`` is kept twice (``twin_file``): term, vote (null for none), term and index of
the newest entry. It is replaced before the replica's folder is removed, and nothing in it ever goes back. It
stays for good: every later opening needs the entry (``Restored.forgotten``). What a crash leaves: the folder,
the folder and its tombstone, or the tombstone.

Decides nothing about when a replica may be deleted (``partitions.hosting.deletion``).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from raftlog.clock import Clock
from raftlog.core.membership import NOBODY
from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.storage import twin_file
from raftlog.storage.durable_state import DurableState
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.storage.slots import INDEX_MAX
from raftlog.types import EntryId, GroupId, Index, NodeId, Term

TOMBSTONES_FOLDER = "tombstones"


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Term, vote and newest entry of a replica's former lives."""

    hard_state: HardState
    last: EntryId


@dataclass(frozen=True, slots=True)
class DeletePermit:
    """What a leader says that lets a replica go: its term, confirmed by a quorum, and its log's end."""

    term: Term
    end: EntryId


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    term: Term
    vote: NodeId | None
    last_term: Term
    last_index: Index


def write(
    filesystem: Filesystem,
    data_directory: str,
    group: GroupId,
    replica_directory: str,
    clock: Clock,
    leader: DeletePermit,
    node_id: NodeId,
) -> None:
    """Keep what the closed replica in ``replica_directory`` has promised, durably.

    Of its entries no more is kept than the end of the log of the leader that lets it go: what it acknowledged
    beyond was never committed. A damaged log, of which the worst is believed, would else hold up elections.

    Where term and vote cannot be read, it has voted in the leader's term, for itself. A vote that it may have
    given in a later one counts for nothing: the membership without this replica is committed, so a candidate
    that counts that vote lacks an entry that a quorum holds, and cannot win.

    Raises ``LogCorrupt`` when an earlier tombstone cannot be read: then it must not be deleted.
    """
    kept = load(filesystem, data_directory, group)
    found = _promises_in(filesystem, replica_directory, clock)
    if found is None:
        found = Tombstone(HardState(leader.term, node_id), leader.end)
    state, last = found.hard_state, min(found.last, leader.end)
    if kept is not None:
        state = state if state.term >= kept.hard_state.term else kept.hard_state
        last = max(last, kept.last)
    keep(filesystem, data_directory, group, Tombstone(state, last))


def _promises_in(filesystem: Filesystem, directory: str, clock: Clock) -> Tombstone | None:
    """What a replica has promised; of a damaged log it is believed that it was as long as can be."""
    try:
        log = SegmentedLog.open(filesystem, directory, LogSettings(), clock)
    except LogCorrupt:
        try:
            state = DurableState.open(filesystem, directory, is_new=False).state.hard_state
        except LogCorrupt:
            return None
        return Tombstone(state, EntryId(state.term, INDEX_MAX))
    try:
        restored = log.restored(NOBODY)
        return Tombstone(restored.hard_state, restored.last)
    finally:
        log.close()


def keep(filesystem: Filesystem, data_directory: str, group: GroupId, tombstone: Tombstone) -> None:
    """Write the tombstone of a group, durably."""
    filesystem.make_directories(f"{data_directory}/{TOMBSTONES_FOLDER}")
    state, last = tombstone.hard_state, tombstone.last
    found = _Kept(state.term, state.voted_for, last.term, last.index)
    twin_file.keep(filesystem, data_directory, _name(group), found)


def load(filesystem: Filesystem, data_directory: str, group: GroupId) -> Tombstone | None:
    """What earlier lives have promised; None when there were none. Raises ``LogCorrupt``."""
    found = twin_file.load(filesystem, data_directory, _name(group), _Kept)
    if found is None:
        return None
    return Tombstone(HardState(found.term, found.vote), EntryId(found.last_term, found.last_index))


def _name(group: GroupId) -> str:
    return f"{TOMBSTONES_FOLDER}/{group}"
