"""The memberships in one log, and the membership before its first entry.

Decides which memberships are stored beside the log. ``epochs`` holds the memberships below the offset that it
covers, so that opening the log need not read closed segments. ``members`` holds the memberships that were in
force just before the log, for its present start and for earlier starts. Leaves to others: when these files
are written (``segmented_log``, ``log_sync``) and what memberships mean (``core``). The log is the authority
on the memberships in it: each is a batch.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Sequence

from raftlog.core.membership import Membership, MembershipEntry
from raftlog.errors import CorruptBatch, LogCorrupt
from raftlog.records.batch import Batch
from raftlog.records.control import MemberLists, decode_members, encode_members, members_in, membership_batch
from raftlog.storage.filesystem import Filesystem, is_disk_full
from raftlog.storage.sealed import seal, unseal
from raftlog.types import Index, Term

MEMBERS_NAME = "members"
_MAGIC = b"RLM1"
_COUNT = struct.Struct(">I")
_ENTRY = struct.Struct(">qH")  # index, length of the encoded membership


class LogMembers:
    """The memberships of one log, oldest first, according to its files."""

    __slots__ = ("_bases", "_entries", "_filesystem", "_lock", "_path", "is_due")

    def __init__(self, filesystem: Filesystem, directory: str, bases: Iterable[MembershipEntry]) -> None:
        self._filesystem = filesystem
        self._path = f"{directory}/{MEMBERS_NAME}"
        self._lock = threading.Lock()
        self._bases = [*bases]  # content of the file: each was in force just before the log at some time
        self._entries: list[MembershipEntry] = []  # the memberships in the log
        self.is_due = False  # whether the file lacks the newest base

    def base(self, start: Index) -> Membership | None:
        """The membership in force just before a log that begins at ``start``; None if it was never stored."""
        found = newest_below(self._bases, start)
        return None if found is None else found.membership

    def in_log(self) -> tuple[MembershipEntry, ...]:
        """The memberships in the log."""
        return tuple(self._entries)

    def below(self, covers: int) -> list[MembershipEntry]:
        """The memberships in the log below the offset ``covers``, for the epochs file."""
        return [entry for entry in self._entries if entry.index < covers]

    def note(self, index: int, membership: Membership) -> None:
        """Add a membership that is in the log; a membership that is already known changes nothing."""
        if not self._entries or self._entries[-1].index < index:
            self._entries.append(MembershipEntry(Index(index), membership))

    def truncate_suffix(self, first_removed: int) -> None:
        """Forget the memberships at ``first_removed`` and later."""
        while self._entries and self._entries[-1].index >= first_removed:
            self._entries.pop()

    def keep_base(self, start: Index, base: MembershipEntry) -> None:
        """Keep the membership in force just before the log's next start, before the slot has that start.

        The membership before the present ``start`` stays in the file: it is in use until the slot is written.
        """
        with self._lock:
            if base not in self._bases:
                present = newest_below(self._bases, start)
                self._bases = [base] if present is None else [present, base]
                self.is_due = True

    def move_start(self, start: Index, following: Index, base: MembershipEntry | None = None) -> None:
        """Prepare a log start at ``following``: on return the membership just before it is durable.

        ``base`` is that membership if the log does not reach up to ``following``.
        """
        base = base or newest_below(self._entries, following)
        if base is not None:
            self.keep_base(start, base)
        self.flush()

    def truncate_prefix(self, start: Index) -> None:
        """Forget the memberships below the log start ``start``."""
        self._entries = [entry for entry in self._entries if entry.index >= start]

    def flush(self) -> None:
        """Write the memberships before the log's starts durably, if the file lacks any; runs on the sync's
        thread, too.
        """
        with self._lock:
            if self.is_due:
                self._filesystem.replace_file(self._path, seal(_MAGIC, encode_entries(self._bases)))
                self.is_due = False

    def flush_if_room(self) -> None:
        """Do the work of ``flush``, unless the disk is full: a vote needs no room, and must not wait for
        room.
        """
        try:
            self.flush()
        except OSError as error:
            if not is_disk_full(error):
                raise


def newest_below(entries: Sequence[MembershipEntry], index: Index) -> MembershipEntry | None:
    """The last membership with an index below ``index``; None without one.

    ``entries`` are in rising order.
    """
    return next((entry for entry in reversed(entries) if entry.index < index), None)


def load_members(filesystem: Filesystem, directory: str) -> LogMembers:
    """Read the file ``members``; without the file, no base is known.

    Raises ``LogCorrupt`` if it is damaged.
    """
    path = f"{directory}/{MEMBERS_NAME}"
    try:
        payload = unseal(_MAGIC, filesystem.read_file(path))
    except FileNotFoundError:
        return LogMembers(filesystem, directory, ())
    if payload is None:
        raise LogCorrupt(
            f"{path}: the checksum is wrong, and no other file has the members before the log start; "
            "its broker repairs it from the other replicas"
        )
    return LogMembers(filesystem, directory, decode_entries(payload))


def replace_members(filesystem: Filesystem, directory: str, entries: bytes) -> None:
    """Replace a damaged file ``members`` with the entries that a peer has sent, encoded by
    ``encode_entries``.
    """
    filesystem.replace_file(f"{directory}/{MEMBERS_NAME}", seal(_MAGIC, entries))


def encode_entries(entries: Iterable[MembershipEntry]) -> bytes:
    """Encode memberships and their indexes for the files ``epochs`` and ``members``."""
    values = [(entry.index, encode_members(_lists(entry.membership))) for entry in entries]
    return _COUNT.pack(len(values)) + b"".join(
        [_ENTRY.pack(index, len(value)) + value for index, value in values]
    )


def decode_entries(payload: memoryview) -> list[MembershipEntry]:
    """Decode the result of ``encode_entries`` from a file whose checksum is right."""
    (count,) = _COUNT.unpack_from(payload)
    at, found = _COUNT.size, []
    for _ in range(count):
        index, length = _ENTRY.unpack_from(payload, at)
        at += _ENTRY.size
        found.append(MembershipEntry(Index(index), Membership(*decode_members(payload[at : at + length]))))
        at += length
    return found


def membership_in(batch: Batch) -> Membership | None:
    """The membership in a batch; None if the batch contains none. Raises ``CorruptBatch``."""
    if not batch.header.is_control:
        return None
    lists = members_in(batch)
    if lists is None:
        return None
    if batch.header.last_offset_delta:
        raise CorruptBatch("last_offset_delta: a membership takes one offset")
    return Membership(*lists)


def batch_of(membership: Membership, *, index: Index, term: Term, timestamp_ms: int) -> Batch:
    """The batch of one entry that sets a membership."""
    return membership_batch(
        base_offset=index, leader_epoch=term, members=_lists(membership), timestamp_ms=timestamp_ms
    )


def _lists(membership: Membership) -> MemberLists:
    return MemberLists(membership.voters, membership.learners, membership.outgoing)
