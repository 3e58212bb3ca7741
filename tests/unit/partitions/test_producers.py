"""The rules by which a retried batch is recognised."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.replica.producer_table import ProducerTable
from partitions.replica.producers import Begun, InFlight, Known
from raftlog.errors import InvalidRequest, InvariantViolated, OutOfOrderSequence, ProducerFenced
from raftlog.records.batch import APPEND_TIME_BIT, CONTROL_BIT, SEQUENCE_MAX, BatchHeader
from raftlog.types import Index, Term
from raftlog.wire.limits import PRODUCER_BATCHES_MAX

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


def applied(*headers: BatchHeader) -> InFlight[str]:
    table = ProducerTable()
    for one in headers:
        table.apply(one)
    return InFlight(table)


@pytest.mark.parametrize(
    ("known", "sent"),
    [
        ([], header(-1, producer=-1)),
        ([], header(123_456, epoch=4)),  # the state of its producer may have expired
        ([header(0)], header(10)),
        ([header(0, epoch=1)], header(0, epoch=2)),
        ([header(SEQUENCE_MAX - 9)], header(0)),
    ],
)
def test_a_batch_that_continues_its_producer_is_new(known: list[BatchHeader], sent: BatchHeader) -> None:
    assert applied(*known).check([sent]) is None


@pytest.mark.parametrize(
    ("known", "sent", "expected"),
    [
        ([header(0)], header(20), 10),
        ([header(0), header(10)], header(10, count=5), 20),  # overlaps another batch
        ([header(0, epoch=1)], header(10, epoch=2), 0),
        ([header(0, epoch=1, count=10), header(0, epoch=2, count=3)], header(0, epoch=2, count=10), 3),
        ([header(SEQUENCE_MAX - 9)], header(1), 0),
    ],
)
def test_a_gap_or_an_overlap_is_refused_with_the_expected_sequence(
    known: list[BatchHeader], sent: BatchHeader, expected: int
) -> None:
    with pytest.raises(OutOfOrderSequence) as refused:
        applied(*known).check([sent])
    assert refused.value.details == {"expected_seq": expected}


# requirement: D3
@pytest.mark.parametrize("count", [1, 2])
def test_a_batch_without_a_sequence_is_new_until_its_epoch_ends(count: int) -> None:
    in_flight = applied(header(0))
    late = [header(-1)] * count
    assert in_flight.check(late) is None
    in_flight.add_marker(7, 0, Index(20), "marker")
    with pytest.raises(ProducerFenced):
        in_flight.check(late)
    assert in_flight.check([header(-1, epoch=1)] * count) is None


def test_a_duplicate_is_answered_with_the_offset_of_the_original() -> None:
    # requirement: D3
    known = applied(header(0, base=40), header(10, base=77)).check([header(10)])
    assert known == Known(77, 86, 1_000, 3, None)


def test_five_batches_are_remembered_and_the_sixth_is_forgotten() -> None:
    tracker = applied(*(header(10 * n, base=10 * n) for n in range(PRODUCER_BATCHES_MAX + 1)))
    for n in range(1, PRODUCER_BATCHES_MAX + 1):
        known = tracker.check([header(10 * n)])
        assert known is not None
        assert known.base_offset == 10 * n
    with pytest.raises(OutOfOrderSequence):
        tracker.check([header(0)])


def test_an_older_epoch_is_fenced_even_with_a_batch_that_was_accepted_once() -> None:
    tracker = applied(header(0, epoch=1), header(0, epoch=2))
    with pytest.raises(ProducerFenced) as fenced:
        tracker.check([header(0, epoch=1)])
    assert fenced.value.details == {"current_epoch": 2}


def test_a_batch_may_wrap_in_its_middle() -> None:
    tracker = applied(header(SEQUENCE_MAX - 4))
    assert tracker.check([header(5)]) is None
    assert tracker.check([header(SEQUENCE_MAX - 4)]) is not None


def test_a_retry_of_a_batch_in_flight_gives_the_same_handle() -> None:
    tracker = applied()
    tracker.add([header(0)], Index(100), Term(5), 2_000, "first")
    assert tracker.check([header(0)]) == Known(100, 109, 2_000, 5, "first")
    assert tracker.check([header(10)]) is None
    tracker.add([header(10)], Index(110), Term(5), 3_000, "second")
    assert tracker.check([header(0), header(10)]) == Known(100, 119, 3_000, 5, "second")


def test_what_is_applied_leaves_the_flight() -> None:
    table = ProducerTable()
    tracker: InFlight[str] = InFlight(table)
    tracker.add([header(0)], Index(0), Term(3), None, "first")
    tracker.add([header(10)], Index(10), Term(3), None, "second")
    table.apply(header(0, base=0))
    tracker.applied(Index(9))
    assert len(tracker) == 1
    first, second = tracker.check([header(0)]), tracker.check([header(10)])
    assert first is not None
    assert first.handle is None
    assert second is not None
    assert second.handle == "second"


def test_losing_the_office_forgets_what_was_in_flight_and_keeps_what_is_applied() -> None:
    tracker = applied(header(0))
    tracker.add([header(10)], Index(10), Term(3), None, "second")
    tracker.clear()
    assert tracker.check([header(10)]) is None
    assert tracker.check([header(0)]) is not None


def test_an_epoch_in_flight_fences_the_one_before() -> None:
    tracker = applied(header(0, epoch=1))
    tracker.add([header(0, epoch=2)], Index(10), Term(3), None, "new life")
    with pytest.raises(ProducerFenced):
        tracker.check([header(10, epoch=1)])


def test_several_batches_of_one_request_must_follow_one_another() -> None:
    assert applied().check([header(0), header(10), header(0, producer=8)]) is None
    with pytest.raises(OutOfOrderSequence):
        applied().check([header(0), header(20)])
    with pytest.raises(OutOfOrderSequence):
        applied().check([header(0), header(0)])


def test_a_request_of_several_batches_is_a_duplicate_as_a_whole() -> None:
    tracker = applied(header(0, base=50), header(10, base=60))
    known = tracker.check([header(0), header(10)])
    assert isinstance(known, Known)
    assert (known.base_offset, known.last_offset) == (50, 69)


def test_a_request_whose_first_batches_a_death_has_left_is_begun() -> None:
    # requirement: D3
    tracker = applied(header(0, base=50))
    assert tracker.check([header(0), header(10), header(20)]) == Begun(1)
    assert applied(header(0), header(10)).check([header(0), header(10), header(20)]) == Begun(2)
    with pytest.raises(OutOfOrderSequence):
        tracker.check([header(0), header(20)])


def test_a_request_of_which_another_part_is_known_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="sent before"):
        applied(header(0)).check([header(0, producer=8), header(0)])
    with pytest.raises(InvalidRequest, match="sent before"):
        applied(header(0)).check([header(0), header(-1, producer=-1)])
    with pytest.raises(InvalidRequest, match="sent before"):
        applied(header(0)).check([header(-1, producer=-1), header(0)])


def test_duplicates_that_do_not_stand_together_are_no_run() -> None:
    for second, in_one_run in ((60, True), (70, False)):
        tracker = applied(header(0, base=50), header(10, base=second))
        known = tracker.check([header(0), header(10)])
        assert isinstance(known, Known)
        assert known.in_one_run is in_one_run


def test_more_batches_than_are_remembered_are_refused_in_one_request() -> None:
    with pytest.raises(InvalidRequest, match="more than 5"):
        applied().check([header(10 * n) for n in range(PRODUCER_BATCHES_MAX + 1)])


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


def test_the_number_of_producers_is_bounded_and_the_one_silent_longest_goes() -> None:
    table = ProducerTable(producers_max=2)
    table.apply(header(0, producer=1))
    table.apply(header(0, producer=2))
    table.apply(header(10, producer=1))
    table.apply(header(0, producer=3))
    assert [table.get(producer) is not None for producer in (1, 2, 3)] == [True, False, True]


def test_control_batches_are_nobodys() -> None:
    table = ProducerTable()
    table.apply(header(-1, producer=-1, attributes=CONTROL_BIT))
    assert len(table) == 0


def test_the_marker_of_a_transaction_fences_its_epoch() -> None:
    # requirement: D3
    table = ProducerTable()
    table.apply(header(0))
    table.apply(header(-1, attributes=CONTROL_BIT))
    table.apply(header(-1, producer=99, attributes=CONTROL_BIT))  # no batch of it has come
    again = ProducerTable()
    again.restore(table.snapshot())
    for producer in (header(0).producer_id, 99):
        with pytest.raises(ProducerFenced):
            InFlight[str](again).check([header(10, producer=producer)])
        first = header(0, producer=producer)._replace(producer_epoch=header(0).producer_epoch + 1)
        assert InFlight[str](again).check([first]) is None
        assert again.base_offsets() == frozenset()


def test_a_restored_table_gives_the_same_answers_and_the_same_bytes() -> None:
    table, again = ProducerTable(), ProducerTable()
    for n in range(8):
        table.apply(header(10 * n, base=10 * n))
        table.apply(header(0, producer=100 + n, base=1_000 + n))
    again.restore(table.snapshot())
    assert again.snapshot() == table.snapshot()
    repeatable = {*range(30, 80, 10), *range(1_000, 1_008)}  # five batches of one producer, one of each other
    assert again.base_offsets() == repeatable, "compaction keeps their headers"
    assert InFlight[str](again).check([header(70)]) == InFlight[str](table).check([header(70)])
    again.restore(b"")
    assert len(again) == 0


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
