"""The state of consumer groups from a compacted ``__offsets`` is that from all of its records."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from groups.records import (
    KINDS,
    CommittedOffset,
    Group,
    GroupKey,
    Key,
    OffsetKey,
    TransactionKey,
    TransactionOffsets,
    Value,
)
from groups.state import GroupsState
from raftlog.core.ready import HardState
from raftlog.records.batch import Batch, Codec, stamp
from raftlog.records.builder import build_batch
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import Term
from tests.helpers.compacting import compact, compactor, stored
from tests.helpers.group_coordination import CoordinatedGroups
from tests.helpers.log_files import DIRECTORY, sync
from tests.helpers.manual_wall_clock import ManualWallClock

NAMES = st.sampled_from(["one", "two"])
OFFSETS = st.tuples(
    st.builds(OffsetKey, NAMES, st.sampled_from(["orders", "bills"]), st.integers(0, 1)),
    st.one_of(st.none(), st.builds(CommittedOffset, offset=st.integers(0, 9), topic_id=st.just("id"))),
)
GROUPS = st.tuples(
    st.builds(GroupKey, NAMES), st.one_of(st.none(), st.builds(Group, generation=st.integers(0, 9)))
)
TRANSACTIONS = st.tuples(
    st.builds(TransactionKey, NAMES, st.integers(1, 2)),
    st.one_of(st.none(), st.builds(TransactionOffsets, epoch=st.integers(0, 9))),
)
RECORDS = st.lists(st.one_of(OFFSETS, GROUPS, TRANSACTIONS), min_size=1, max_size=4)
ACTS = st.tuples(st.sampled_from(["add", "add", "commit", "abort"]), st.integers(1, 3), st.integers(0, 1))


@settings(max_examples=24)
@given(batches=st.lists(RECORDS, min_size=1, max_size=30), removes_tombstones=st.booleans())
def test_a_compacted_log_gives_the_same_groups(
    batches: list[list[tuple[Key, Value | None]]], removes_tombstones: bool
) -> None:
    filesystem = FakeFilesystem()
    log = SegmentedLog.open(filesystem, DIRECTORY, LogSettings(segment_bytes=500), ManualWallClock())
    log.save_hard_state(HardState(Term(1), None))
    written: list[Batch] = []
    for number, records in enumerate(batches):
        data = build_batch(
            [KINDS.record_of(key, value) for key, value in records], codec=Codec.NONE, timestamp_ms=0
        )
        base = int(log.last_index) + 1
        written.append(stamp(data, base_offset=base, leader_epoch=1, append_time_ms=number))
        log.append(written[-1:])
    sync(log)
    log.note_commit_index(log.last_index)
    compact(filesystem, log)
    if removes_tombstones:
        end = int(log.last_index) + 1
        compact(filesystem, log, compactor(filesystem, log, tombstones_end=end))
    assert state_of(stored(log)).snapshot() == state_of(written).snapshot()


@settings(max_examples=80)
@given(acts=st.lists(ACTS, min_size=4, max_size=12), snapshot_at=st.integers(1, 3), draws=st.randoms())
def test_compaction_after_a_snapshot_leaves_the_same_partitions_pending(
    acts: list[tuple[str, int, int]], snapshot_at: int, draws: random.Random
) -> None:
    """A replica that restores a snapshot applies what compaction has left of the records behind it."""
    groups, snapshot, first = CoordinatedGroups({"orders": 2}), b"", 0
    epochs = dict.fromkeys((1, 2, 3), 0)
    for number, (act, producer, partition) in enumerate(acts):
        if number == snapshot_at:
            snapshot, first = groups.committed.snapshot(), len(groups.written)
        if act == "add":
            groups.add(object, number, partition=partition, producer=producer, epoch=epochs[producer])
        else:
            groups.end(is_commit=act == "commit", producer=producer, epoch=epochs[producer])
            epochs[producer] += 1
    rows = [row for rows in groups.written[first:] for row in rows]
    newest = {key: at for at, (key, _) in enumerate(rows)}
    state = GroupsState()
    state.restore(snapshot)
    for at, (key, value) in enumerate(rows):
        if newest[key] == at or draws.random() < 0.2:
            state.put(key, value)
    assert state.pending == groups.committed.pending
    assert state.snapshot() == groups.committed.snapshot()


def state_of(batches: list[Batch]) -> GroupsState:
    state = GroupsState()
    for batch in batches:
        state.apply(batch)
    return state
