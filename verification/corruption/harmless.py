"""Shows that undetected damage is harmless.

The files of a disk are compared at three times: just before the damage, just after it, and at the end of the
case. Each changed file must be restored at the end, or the slots and the log *before* the damage must show
that the changed bytes are not needed. Damage that cannot be shown to be harmless counts as missed.

The files are parsed by the formats' own decoders, independently of the production code that detects damage.
``case`` checks that all replicas end with equal logs, states and members.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from raftlog.core.membership import MembershipEntry
from raftlog.errors import CorruptBatch, LogCorrupt
from raftlog.records.batch import Batch, check_batch, parse_header
from raftlog.storage.epochs import EPOCHS_NAME, load_epochs
from raftlog.storage.members import MEMBERS_NAME, load_members, membership_in
from raftlog.storage.segment import INDEX_SUFFIX, LOG_SUFFIX
from raftlog.storage.slots import SLOT_NAMES, ReplicaState, Slot, initial_state, read_slot
from raftlog.storage.sparse_index import build_index
from raftlog.storage.state_files import CHECKPOINT_NAME, STATE_SUFFIX
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import Index
from verification.corruption.cluster import Image

INTERVAL_BYTES: Final = 4096  # interval of a sparse index


@dataclass(frozen=True, slots=True)
class Disk:
    """One machine's files: before the damage, after it, at the end; ``older`` is an older copy."""

    before: Image
    after: Image
    end: Image
    older: Image


def shown_harmless(disk: Disk) -> str | None:
    """Return the reason why the damage is harmless; None if that cannot be shown."""
    changed = sorted(
        path for path in {*disk.before, *disk.after} if disk.before.get(path) != disk.after.get(path)
    )
    reasons = [_reason(disk, path) for path in changed]
    return None if None in reasons else ", ".join(dict.fromkeys(str(reason) for reason in reasons))


def _reason(disk: Disk, path: str) -> str | None:
    folder, _, name = path.rpartition("/")
    if disk.end.get(path) == disk.before.get(path):
        return "it was written again with its old content"
    if name in SLOT_NAMES:
        return _of_slot(disk, folder)
    if name.endswith(LOG_SUFFIX):
        return _of_segment(disk, path)
    if name.endswith(INDEX_SUFFIX):
        return _of_index(disk, path)
    if name == EPOCHS_NAME:
        return _of_epochs(disk, folder)
    if name == CHECKPOINT_NAME or name.endswith(STATE_SUFFIX):
        return _of_state(disk, path)
    if name == MEMBERS_NAME:
        return _of_members(disk, folder)
    return None


def _of_slot(disk: Disk, folder: str) -> str | None:
    """Check that term, vote and log start are unchanged, and both slots can be read at the end.

    The durable end in the slots may be lower than before, because a slot with only a new durable end is not
    synced.
    """
    truth, left = _state(disk.before, folder), _state(disk.after, folder)
    if (left.hard_state, left.log_start, left.before) != (truth.hard_state, truth.log_start, truth.before):
        return None
    is_as_sure = left.durable_index <= truth.durable_index and len(_slots(disk.end, folder)) == len(
        SLOT_NAMES
    )
    return "the other slot has the same content" if is_as_sure else None


def _of_segment(disk: Disk, path: str) -> str | None:
    """Check that none of the changed bytes of a segment was durable, or that retention has deleted these
    bytes.
    """
    folder = path.rpartition("/")[0]
    truth = _state(disk.before, folder)
    before, after = disk.before[path], disk.after.get(path, b"")
    batches = list(_whole(before))
    last = batches[-1][1].last_offset if batches else _base(path) - 1
    if path not in disk.end and last < _state(disk.end, folder).log_start:
        return "the log begins after it"
    for at, batch in batches:
        if after[at : at + len(batch.data)] != before[at : at + len(batch.data)]:
            durable_index = max(truth.durable_index, load_epochs(_loaded(disk.before), folder).covers - 1)
            return "it was above the durable end" if batch.base_offset > durable_index else None
    return "it is after the last batch"


def _of_index(disk: Disk, path: str) -> str | None:
    """Check that a damaged index file is not used: at the end it is removed, or rebuilt from its segment."""
    segment = path.removesuffix(INDEX_SUFFIX) + LOG_SUFFIX
    if segment not in disk.end:
        return "its segment was deleted"
    headers = ((at, batch.header) for at, batch in _whole(disk.end[segment]))
    index, summary = build_index(headers, INTERVAL_BYTES)
    if summary is not None and disk.end.get(path) == index.encode(summary):
        return "it matches its segment"
    return "it can be built from its segment" if path not in disk.end else None


def _of_epochs(disk: Disk, folder: str) -> str | None:
    """Check that the file's entries, before the damage and at the end, agree with the batches of the log."""
    batches = list(_batches(disk.end, folder))
    return (
        "the batches have all of it"
        if all(_agrees(image, folder, batches) for image in (disk.before, disk.end))
        else None
    )


def _agrees(image: Image, folder: str, batches: list[Batch]) -> bool:
    if f"{folder}/{EPOCHS_NAME}" not in image:
        return True
    epochs, memberships, covers = load_epochs(_loaded(image), folder)
    covered = [batch for batch in batches if batch.base_offset < covers]
    first = min((batch.base_offset for batch in covered), default=covers)
    found = [(batch.base_offset, membership_in(batch)) for batch in covered]
    in_log = [MembershipEntry(Index(index), members) for index, members in found if members is not None]
    return (
        covers >= 0
        and in_log == [entry for entry in memberships if entry.index >= first]
        and all(epochs.term_at(batch.base_offset) == batch.header.leader_epoch for batch in covered)
    )


def _of_state(disk: Disk, path: str) -> str | None:
    """Check that the broker did not use the damaged state, or that the file is an older state of this log."""
    found = disk.end.get(path)
    if found is None or found != disk.after.get(path):
        return "the log was applied without it"
    return "the log was applied from an older state" if found == disk.older.get(path) else None


def _of_members(disk: Disk, folder: str) -> str | None:
    """Check that the membership at the log start is unchanged, or that the log begins with its
    first entry.
    """
    start, path = _state(disk.before, folder).log_start, f"{folder}/{MEMBERS_NAME}"
    if path not in disk.end:
        return "the log begins with its first entry" if start == 0 else None
    with contextlib.suppress(LogCorrupt):
        were, are = (load_members(_loaded(image), folder).base(start) for image in (disk.before, disk.end))
        return "it was written again, with the same members" if were == are else None
    return None


def _state(image: Image, folder: str) -> ReplicaState:
    """Return the content of the slot with the highest number."""
    return max(_slots(image, folder), key=lambda slot: slot.sequence, default=Slot(0, initial_state())).state


def _slots(image: Image, folder: str) -> list[Slot]:
    files = _loaded(image)
    found = [read_slot(files, f"{folder}/{name}") for name in SLOT_NAMES]
    return [slot for slot in found if isinstance(slot, Slot)]


def _loaded(image: Image) -> FakeFilesystem:
    files = FakeFilesystem()
    files.load(image)
    return files


def _base(path: str) -> int:
    return int(path.rpartition("/")[2].removesuffix(LOG_SUFFIX))


def _batches(image: Image, folder: str) -> Iterator[Batch]:
    for path in sorted(image):
        if path.rpartition("/")[0] == folder and path.endswith(LOG_SUFFIX):
            yield from (batch for _, batch in _whole(image[path]))


def _whole(data: bytes) -> Iterator[tuple[int, Batch]]:
    """Yield the position and bytes of each complete batch, up to the first incomplete batch."""
    at = 0
    with contextlib.suppress(CorruptBatch):
        while at < len(data):
            header = parse_header(data, at)
            batch = Batch(memoryview(data)[at : at + header.size_bytes], header)
            check_batch(batch)
            yield at, batch
            at += header.size_bytes
