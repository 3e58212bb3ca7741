"""Records that were read beside others: which are kept, and for how long."""

from __future__ import annotations

from broker.read_ahead import SHARE, ReadAhead
from raftlog.records.reader import RECORD_MEMORY_BYTES, StoredRecord

# requirement: A3

BYTES = 100
TAKEN = BYTES + RECORD_MEMORY_BYTES


def batch(first: int, count: int) -> list[StoredRecord]:
    return [StoredRecord(offset, 0, None, b"x" * BYTES, ()) for offset in range(first, first + count)]


def kept(ahead: ReadAhead, offsets: range) -> list[int]:
    taken = (ahead.take(0, offset) for offset in offsets)
    return [record.offset for record in taken if record is not None]


def test_a_record_is_taken_once() -> None:
    ahead = ReadAhead()
    ahead.begin(0, is_led=True)
    ahead.keep(0, ahead.epoch_of(0), batch(0, 10))
    assert kept(ahead, range(3, 5)) == [3, 4]
    assert kept(ahead, range(12)) == [0, 1, 2, 5, 6, 7, 8, 9]
    assert ahead.take(1, 0) is None


def test_the_oldest_batches_leave_where_there_is_no_room() -> None:
    ahead = ReadAhead(25 * TAKEN)
    for partition in (0, 1):
        ahead.begin(partition, is_led=True)
    ahead.keep(0, ahead.epoch_of(0), batch(0, 10))
    ahead.keep(1, ahead.epoch_of(1), batch(0, 10))
    ahead.keep(0, ahead.epoch_of(0), batch(10, 5))
    ahead.keep(0, ahead.epoch_of(0), batch(15, 5))
    assert kept(ahead, range(20)) == [*range(10, 20)]
    assert ahead.take(1, 9) is not None


def test_batches_that_would_take_most_of_the_room_are_not_kept() -> None:
    ahead = ReadAhead(SHARE * 10 * TAKEN)
    assert ahead.takes(10, 10 * BYTES)
    assert not ahead.takes(11, 11 * BYTES)


def test_another_epoch_begins_with_nothing() -> None:
    ahead = ReadAhead()
    for partition in (0, 1):
        ahead.begin(partition, is_led=True)
        ahead.keep(partition, ahead.epoch_of(partition), batch(0, 2))
    ahead.begin(0, is_led=True)
    assert ahead.take(0, 0) is None
    assert ahead.take(1, 0) is not None
    ahead.begin(1, is_led=False)
    ahead.keep(1, ahead.epoch_of(1), batch(2, 2))
    assert ahead.take(1, 2) is None


def test_a_read_that_began_in_an_earlier_epoch_keeps_nothing() -> None:
    ahead = ReadAhead()
    ahead.begin(0, is_led=True)
    epoch = ahead.epoch_of(0)
    ahead.begin(0, is_led=True)
    ahead.keep(0, epoch, batch(0, 2))
    assert ahead.take(0, 0) is None


def test_batches_of_which_nothing_is_left_take_no_memory() -> None:
    ahead = ReadAhead()
    ahead.begin(0, is_led=True)
    for _ in range(100):
        ahead.keep(0, ahead.epoch_of(0), [])
    assert not ahead._batches
