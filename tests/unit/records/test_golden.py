"""The format is one contract: our bytes, kafka-python's and those kept here say the same."""

from __future__ import annotations

import cramjam
import pytest
from msgspec.structs import replace

from raftlog.records.batch import HEADER_BYTES, Codec, check_batch
from raftlog.records.compression import compress, decompress
from raftlog.records.control import ControlType, control_type, leader_change_batch
from raftlog.types import NodeId
from tests.unit.records.samples import (
    RECORDS,
    DefaultRecordBatch,
    golden_bytes,
    one_batch,
    ours,
    read_by_them,
    read_by_us,
    theirs,
)

codecs = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())


@codecs
def test_the_kept_bytes_hold_the_sample_records(codec: Codec) -> None:
    # requirement: M5
    data = golden_bytes(codec.name.lower())
    check_batch(one_batch(data))
    assert read_by_us(data) == RECORDS
    assert read_by_them(data) == RECORDS


def test_we_build_the_kept_bytes() -> None:
    # requirement: M5
    built, kept = ours(Codec.NONE), golden_bytes("none")
    assert built[:12] == kept[:12]
    assert (
        built[12:16] == b"\xff" * 4
    )  # no leader epoch; kafka-python writes 0, and a leader writes over both
    assert built[16:] == kept[16:]


@codecs
def test_they_read_what_we_built(codec: Codec) -> None:
    # requirement: M4
    # requirement: T9
    assert read_by_them(ours(codec)) == RECORDS


@codecs
def test_we_read_what_they_built(codec: Codec) -> None:
    # requirement: M4
    # requirement: T9
    data = theirs(codec)
    check_batch(one_batch(data))
    assert read_by_us(data) == RECORDS


@codecs
def test_what_is_larger_than_a_block_survives_both_ways(codec: Codec) -> None:
    # requirement: T9
    records = [replace(record, value=(record.value or b"") * 900) for record in RECORDS]
    assert read_by_them(ours(codec, records)) == records
    assert read_by_us(theirs(codec, records)) == records


def test_snappy_is_read_with_and_without_xerial_blocks() -> None:
    data = bytes(range(256)) * 1000
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    for body in (framed, bytes(cramjam.snappy.compress_raw(data))):
        assert decompress(Codec.SNAPPY, body, bytes_max=len(data)) == data


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    descriptor = compress(Codec.LZ4, b"x" * 100_000)[4]
    assert descriptor & 0x20


def test_a_leader_change_is_the_kept_bytes_and_theirs_to_read() -> None:
    # requirement: M5
    batch = leader_change_batch(
        base_offset=41, leader_epoch=7, leader=NodeId(3), timestamp_ms=1_700_000_000_000
    )
    assert batch.data == golden_bytes("leader_change")
    check_batch(batch)
    assert batch.header.is_control
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (41, 41, 7)
    assert control_type(batch) is ControlType.LEADER_CHANGE
    found = DefaultRecordBatch(bytes(batch.data))
    assert found.is_control_batch
    (record,) = found
    assert record.key == b"\0\0\0\2"
    assert len(batch.data) > HEADER_BYTES
