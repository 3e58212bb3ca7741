"""For how long a producer is remembered, and which ids producers get."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.replica.producer_table import ProducerTable
from raftlog.errors import InvariantViolated
from raftlog.records.batch import APPEND_TIME_BIT, CONTROL_BIT, BatchHeader

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def header(
    sequence: int,
    *,
    producer: int = 7,
    epoch: int = 0,
    count: int = 10,
    base: int = 0,
    timestamp_ms: int = 1_000,
    attributes: int = APPEND_TIME_BIT,
) -> BatchHeader:
    return BatchHeader(
        base_offset=base,
        batch_length=100,
        leader_epoch=3,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def test_a_silent_producer_expires_by_the_append_times_of_others() -> None:
    table = ProducerTable(expiration_ms=DAY_MS)
    for hour in range(25):
        table.apply(header(0, producer=8 if hour else 7, timestamp_ms=1_000 + hour * HOUR_MS))
    assert table.get(7) is not None
    table.apply(header(10, producer=8, timestamp_ms=1_001 + DAY_MS))
    assert table.get(7) is None


def test_a_producers_own_timestamps_make_nobody_expire() -> None:
    table = ProducerTable(expiration_ms=DAY_MS)
    table.apply(header(0, attributes=0))
    table.apply(header(0, producer=8, attributes=0, timestamp_ms=1 << 60))
    assert table.get(7) is not None


def test_control_batches_are_nobodys() -> None:
    table = ProducerTable()
    table.apply(header(-1, producer=-1, attributes=CONTROL_BIT))
    assert len(table) == 0


def test_a_snapshot_of_a_newer_version_stops_the_replica() -> None:
    with pytest.raises(InvariantViolated):
        ProducerTable().restore(b"\x93\x63\x00\x90")


def test_one_stamp_far_ahead_expires_nobody() -> None:
    # requirement: D3
    table = ProducerTable(expiration_ms=DAY_MS)
    table.apply(header(0, timestamp_ms=1_000))
    table.apply(header(0, producer=8, timestamp_ms=1_000 + 14 * DAY_MS))
    table.apply(header(10, producer=8, timestamp_ms=1_001 + 14 * DAY_MS))
    assert table.get(7) is not None


def test_a_pause_of_days_is_believed_once_stamps_have_gone_on_for_an_hour() -> None:
    # requirement: D3
    table = ProducerTable(expiration_ms=DAY_MS)
    table.apply(header(0, timestamp_ms=1_000))
    after = 1_000 + 14 * DAY_MS
    for minute in range(60):
        table.apply(header(0, producer=8, epoch=minute, timestamp_ms=after + minute * 60_000))
    assert table.get(7) is not None
    table.apply(header(0, producer=9, timestamp_ms=after + HOUR_MS))
    assert table.get(7) is None
    assert table.get(8) is not None


def test_on_a_topic_with_create_times_producers_expire_by_what_leaders_stamp() -> None:
    # requirement: D3
    table = ProducerTable(expiration_ms=DAY_MS)
    table.apply(header(-1, producer=-1, attributes=CONTROL_BIT, timestamp_ms=1_000))
    table.apply(header(0, attributes=0, timestamp_ms=1 << 60))
    for hour in range(1, 26):
        table.apply(header(-1, producer=-1, attributes=CONTROL_BIT, timestamp_ms=1_000 + hour * HOUR_MS))
        assert (table.get(7) is not None) == (hour < 25)


def test_who_wrote_before_the_first_stamp_counts_as_having_written_then() -> None:
    # requirement: D3
    table = ProducerTable(expiration_ms=DAY_MS)
    table.apply(header(0, attributes=0))
    for hour in range(26):
        table.apply(header(-1, producer=-1, attributes=CONTROL_BIT, timestamp_ms=(1 << 40) + hour * HOUR_MS))
        again = ProducerTable(expiration_ms=DAY_MS)
        again.restore(table.snapshot())
        assert (again.get(7) is not None) == (table.get(7) is not None) == (hour < 25)


def test_a_create_time_far_ahead_keeps_nobody_for_ever() -> None:
    # requirement: D3
    table = ProducerTable(expiration_ms=DAY_MS)
    table.apply(header(0, timestamp_ms=1_000))
    table.apply(header(0, producer=8, attributes=0, timestamp_ms=1 << 60))
    for hour in range(1, 30):
        table.apply(header(0, producer=9, epoch=hour, timestamp_ms=1_000 + hour * HOUR_MS))
    assert table.get(8) is None


IDS = ProducerIdCipher(b"secret")
NUMBERS = st.integers(0, (1 << 62) - 1)


@given(NUMBERS)
def test_an_id_stands_for_one_number_and_a_number_for_one_id(number: int) -> None:
    # requirement: D3
    assert IDS.number_of(IDS.id_of(number)) == number
    assert IDS.id_of(IDS.number_of(number)) == number
    assert 0 <= IDS.id_of(number) < 1 << 62


def test_ids_tell_nothing_of_one_another() -> None:
    ids = [IDS.id_of(number) for number in range(2000)]
    for bit in range(62):
        ones = sum(found >> bit & 1 for found in ids)
        assert 850 < ones < 1150, f"bit {bit} is set in {ones} of 2000 ids"
    assert not {ProducerIdCipher(b"another").id_of(number) for number in range(2000)} & set(ids)


def test_who_guesses_finds_none() -> None:
    rng = random.Random(1)
    assert min(IDS.number_of(rng.getrandbits(62)) for _ in range(20_000)) > 1_000_000
    assert IDS.number_of((1 << 63) - 1) > 1_000_000
