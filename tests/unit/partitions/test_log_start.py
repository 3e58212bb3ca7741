"""The replicated log start and the archived offset of a partition as state machines."""

from __future__ import annotations

import pytest

from partitions.replica.archived import ArchivedUpTo
from partitions.replica.log_start import LogStart
from partitions.replica.machine import PartitionMachine
from partitions.replica.sealed import Sealed
from raftlog.errors import CorruptBatch, InvariantViolated
from raftlog.records.batch import Batch, stamp
from raftlog.records.control import (
    Archived,
    ControlType,
    Marker,
    Seal,
    archived_batch,
    archived_in,
    control_type,
    leader_change_batch,
    log_start_batch,
    log_start_in,
    marker_batch,
    members_in,
    seal_batch,
)
from raftlog.types import NodeId, Offset
from tests.helpers.orders import batch_of


def start_entry(offset: int, start: int) -> Batch:
    batch = log_start_batch(start, timestamp_ms=5)
    return stamp(batch.data, base_offset=Offset(offset), leader_epoch=1, append_time_ms=None)


def records(offset: int, *values: bytes) -> Batch:
    return stamp(batch_of(*values), base_offset=Offset(offset), leader_epoch=1, append_time_ms=None)


def test_a_log_start_comes_back_as_it_was_written() -> None:
    # requirement: RT4
    entry = start_entry(9, 7)
    assert control_type(entry) is ControlType.LOG_START
    assert log_start_in(entry) == 7
    assert members_in(entry) is None
    marker = marker_batch(Marker(1, 0, True, 7, 3), timestamp_ms=5)
    leader = leader_change_batch(base_offset=0, leader_epoch=1, leader=NodeId(1), timestamp_ms=5)
    assert [log_start_in(other) for other in (marker, leader, records(0, b"v"))] == [None, None, None]


def test_a_start_never_falls_and_the_newest_record_is_none_of_the_brokers() -> None:
    # requirement: RT4
    state = LogStart()
    for entry in (records(0, b"a", b"b", b"c"), start_entry(3, 2), start_entry(4, 1)):
        state.apply(entry)
    assert (state.offset, state.newest_record) == (2, 2)


def test_the_seal_of_the_newest_metadata_counts() -> None:
    # requirement: F5
    state = Sealed()
    for is_sealed, version, counts in ((True, 3, True), (False, 2, False), (False, 3, True), (True, 5, True)):
        before, seal = state.newest, Seal(is_sealed, version)
        state.apply(seal_batch(seal, timestamp_ms=5))
        assert state.newest == (seal if counts else before)


def test_a_partition_is_restored_with_its_log_start() -> None:
    # requirement: RT4
    first, second = PartitionMachine(), PartitionMachine()
    for entry in (records(0, b"a", b"b"), start_entry(2, 1)):
        first.apply(entry)
    second.restore(first.snapshot())
    assert (second.log_start.offset, second.log_start.newest_record) == (1, 1)
    assert second.snapshot() == first.snapshot()
    second.restore(b"")
    assert (second.log_start.offset, second.log_start.newest_record) == (0, -1)


@pytest.mark.parametrize("state", [b"\x02" + bytes(16), b"\x01"])
def test_a_state_of_another_version_is_refused(state: bytes) -> None:
    with pytest.raises(InvariantViolated, match="install the release"):
        LogStart().restore(state)


def test_a_log_start_of_another_version_is_refused() -> None:
    data = bytearray(start_entry(0, 7).data)
    data[-10] = 1  # the record ends with version, offset and the number of headers
    with pytest.raises(CorruptBatch):
        log_start_in(Batch(bytes(data), start_entry(0, 7).header))


def entry(offset: int, archived: int, *, may_lower: bool = False) -> Batch:
    batch = archived_batch(Archived(archived, may_lower), timestamp_ms=5)
    return stamp(batch.data, base_offset=Offset(offset), leader_epoch=1, append_time_ms=None)


def test_an_archived_offset_comes_back_as_it_was_written() -> None:
    # requirement: A8
    assert control_type(entry(9, 7)) is ControlType.ARCHIVED
    assert archived_in(entry(9, 7)) == Archived(7, may_lower=False)
    assert archived_in(entry(9, 7, may_lower=True)) == Archived(7, may_lower=True)
    assert log_start_in(entry(9, 7)) is None
    marker = marker_batch(Marker(1, 0, True, 7, 3), timestamp_ms=5)
    start = log_start_batch(3, timestamp_ms=5)
    assert [archived_in(other) for other in (marker, start, batch_of_records())] == [None, None, None]


def batch_of_records() -> Batch:
    return stamp(batch_of(b"v"), base_offset=Offset(0), leader_epoch=1, append_time_ms=None)


def test_the_offset_goes_back_only_where_its_entry_says_so() -> None:
    # requirement: A8
    state, seen = ArchivedUpTo(), []
    for one in (entry(9, 7), entry(10, 5), entry(11, 8), entry(12, 3, may_lower=True), entry(13, 4)):
        state.apply(one)
        seen.append(state.offset)
    assert seen == [7, 7, 8, 3, 4]


def test_a_partition_is_restored_with_its_archived_offset() -> None:
    # requirement: A8
    first, second = PartitionMachine(), PartitionMachine()
    for one in (batch_of_records(), entry(1, 1)):
        first.apply(one)
    second.restore(first.snapshot())
    assert second.archived.offset == 1
    assert second.log_start.newest_record == 0, "the entry is no record of a user"
    assert second.snapshot() == first.snapshot()
    second.restore(b"")
    assert second.archived.offset == 0


def test_a_state_from_before_archives_is_restored() -> None:
    machine = PartitionMachine()
    machine.apply(batch_of_records())
    parts = [machine.producers.snapshot(), machine.transactions.snapshot(), machine.log_start.snapshot()]
    state = b"\x04" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    restored = PartitionMachine()
    restored.restore(state)
    assert (restored.archived.offset, restored.log_start.newest_record) == (0, 0)


@pytest.mark.parametrize("state", [b"\x02" + bytes(8), b"\x01"])
def test_an_archived_state_of_another_version_is_refused(state: bytes) -> None:
    with pytest.raises(InvariantViolated, match="install the release"):
        ArchivedUpTo().restore(state)


def test_an_archived_offset_of_another_version_is_refused() -> None:
    data = bytearray(entry(0, 7).data)
    data[-11] = 1  # the record ends with version, offset, flag and the number of headers
    with pytest.raises(CorruptBatch):
        archived_in(Batch(bytes(data), entry(0, 7).header))
