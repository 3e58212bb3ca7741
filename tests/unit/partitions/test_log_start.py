"""The replicated log start of a partition as a state machine."""

from __future__ import annotations

import pytest

from partitions.replica.log_start import LogStart
from partitions.replica.machine import PartitionMachine
from raftlog.errors import CorruptBatch, InvariantViolated
from raftlog.records.batch import Batch, stamp
from raftlog.records.control import (
    ControlType,
    Marker,
    control_type,
    leader_change_batch,
    log_start_batch,
    log_start_in,
    marker_batch,
    members_in,
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
    with pytest.raises(InvariantViolated, match="too old"):
        LogStart().restore(state)


def test_a_log_start_of_another_version_is_refused() -> None:
    data = bytearray(start_entry(0, 7).data)
    data[-10] = 1  # the record ends with version, offset and the number of headers
    with pytest.raises(CorruptBatch):
        log_start_in(Batch(bytes(data), start_entry(0, 7).header))
