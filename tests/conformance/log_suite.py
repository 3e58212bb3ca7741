"""What every ``LogStorage`` must do."""

from __future__ import annotations

import pytest

from raftlog.core.membership import Membership
from raftlog.core.ready import HardState
from raftlog.errors import InvariantViolated, OffsetOutOfRange
from raftlog.storage.log_storage import LogStorage, carry_out
from raftlog.storage.segmented_log import LogSettings
from raftlog.testing.log_changes import save_checkpoint, truncate_prefix, truncate_suffix
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term
from tests.helpers.log_files import index_at_time, sync_written
from tests.helpers.storage_batches import leader_change, storage_batch

BATCH = len(storage_batch(0).data)
SETTINGS = LogSettings(segment_bytes=8 * BATCH, index_interval_bytes=2 * BATCH)
NOBODY = Membership(frozenset({NodeId(1)}))


class LogSuite:
    """Subclasses have a fixture ``log``: empty, with ``SETTINGS``, in term 9."""

    def test_a_new_log_is_empty(self, log: LogStorage) -> None:
        assert (log.first_index, log.last_index, log.durable_index, log.size_bytes) == (0, -1, -1, 0)
        assert log.restored(NOBODY).terms == ()
        assert log.term_at(Index(-1)) == 0
        assert index_at_time(log, 0) is None
        restored = log.restored(NOBODY)
        assert (restored.snapshot, restored.last, restored.commit_hint) == (BEFORE_LOG, BEFORE_LOG, -1)

    # requirement: L8
    def test_what_is_read_is_what_was_appended_byte_for_byte(self, log: LogStorage) -> None:
        batches = [storage_batch(0, 3, body=b"a"), storage_batch(3, 1, body=b"b" * 1000), storage_batch(4, 2)]
        log.append(batches[:2])
        log.append(batches[2:])
        found = log.read(Index(0), Index(5), bytes_max=1 << 20)
        assert (found.first, found.last) == (0, 5)
        assert found.read() == b"".join(bytes(batch.data) for batch in batches)
        assert log.size_bytes == len(found.read())

    def test_a_read_brings_the_batch_that_contains_the_index_whole(self, log: LogStorage) -> None:
        fill(log, 6, records=10)
        found = log.read(Index(25), Index(31), bytes_max=1 << 20)
        assert (found.first, found.last) == (20, 39)
        assert len(found.read()) == 2 * BATCH

    def test_a_read_stops_before_the_limit_but_brings_at_least_one_batch(self, log: LogStorage) -> None:
        fill(log, 30)
        for first in range(30):
            for bytes_max in (0, 1, BATCH, 2 * BATCH - 1, 3 * BATCH, 11 * BATCH):
                found = log.read(Index(first), Index(29), bytes_max=bytes_max)
                wanted = min(max(1, bytes_max // BATCH), 30 - first)
                assert (found.first, found.last) == (first, first + wanted - 1)
                assert len(found.read()) == wanted * BATCH

    def test_a_read_ends_with_the_batch_that_contains_the_last_index(self, log: LogStorage) -> None:
        fill(log, 20, records=2)
        for last in range(7, 40):
            found = log.read(Index(7), Index(last), bytes_max=1 << 20)
            assert (found.first, found.last) == (6, last | 1)

    # requirement: RT4
    def test_a_read_outside_the_log_names_the_valid_range(self, log: LogStorage) -> None:
        fill(log, 5)
        for first, last in ((-1, 2), (0, 5), (5, 5), (3, 2)):
            with pytest.raises(OffsetOutOfRange) as caught:
                log.read(Index(first), Index(last), bytes_max=100)
            assert caught.value.details == {"start": 0, "end": 5}

    def test_offsets_that_do_not_follow_are_our_own_mistake(self, log: LogStorage) -> None:
        fill(log, 2)
        with pytest.raises(InvariantViolated):
            log.append([storage_batch(3)])
        with pytest.raises(InvariantViolated):
            log.append([storage_batch(2), storage_batch(2)])
        assert log.last_index == 1

    def test_an_epoch_that_falls_or_that_nobody_voted_for_is_refused(self, log: LogStorage) -> None:
        fill(log, 1, epoch=5)
        with pytest.raises(InvariantViolated):
            log.append([storage_batch(1, epoch=4)])
        with pytest.raises(InvariantViolated):
            log.append([storage_batch(1, epoch=10)])
        assert log.last_index == 0

    def test_entries_are_durable_only_once_their_sync_has_finished(self, log: LogStorage) -> None:
        fill(log, 3)
        first = log.take_sync()
        fill(log, 2)
        assert first is not None
        assert (first.covers, log.durable_index) == (2, -1)
        first.run()
        log.sync_finished(first)
        assert log.durable_index == 2
        sync_written(log)
        assert log.durable_index == 4
        assert log.take_sync() is None

    def test_a_sync_that_overtakes_an_earlier_one_promises_nothing_yet(self, log: LogStorage) -> None:
        fill(log, 1)
        early = log.take_sync()
        fill(log, 1)
        late = log.take_sync()
        assert early is not None
        assert late is not None
        late.run()
        log.sync_finished(late)
        assert log.durable_index == -1
        early.run()
        log.sync_finished(early)
        assert log.durable_index == 1

    def test_a_truncation_takes_back_what_a_sync_under_way_covers(self, log: LogStorage) -> None:
        fill(log, 10)
        flush = log.take_sync()
        assert flush is not None
        truncate_suffix(log, Index(4))
        fill(log, 3, epoch=2)
        flush.run()
        log.sync_finished(flush)
        assert log.durable_index == 3
        sync_written(log)
        assert log.durable_index == 6

    @pytest.mark.parametrize("cut", range(31))
    def test_a_suffix_is_forgotten_anywhere_and_the_log_goes_on(self, log: LogStorage, cut: int) -> None:
        fill(log, 10, epoch=1)
        fill(log, 10, epoch=2)
        fill(log, 10, epoch=3)
        sync_written(log)
        before = content(log)
        truncate_suffix(log, Index(cut))
        assert log.last_index == cut - 1
        assert log.durable_index == cut - 1
        assert log.size_bytes == cut * BATCH
        assert log.restored(NOBODY).terms == tuple(
            EntryId(Term(term), Index(start)) for term, start in ((1, 0), (2, 10), (3, 20)) if start < cut
        )
        fill(log, 12, epoch=4)
        assert content(log)[: cut * BATCH] == before[: cut * BATCH]
        assert log.term_at(Index(cut)) == 4
        assert index_at_time(log, cut * 10) == (cut, cut * 10)

    def test_a_suffix_is_cut_between_batches_only(self, log: LogStorage) -> None:
        fill(log, 3, records=5)
        with pytest.raises(InvariantViolated):
            truncate_suffix(log, Index(7))
        truncate_suffix(log, Index(15))
        assert log.last_index == 14

    # requirement: RT4, L1
    def test_a_prefix_goes_in_whole_segments_and_never_the_active_one(self, log: LogStorage) -> None:
        fill(log, 10, epoch=1)
        fill(log, 10, epoch=2)
        sync_written(log)
        assert truncate_prefix(log, Index(7)) == 0
        assert truncate_prefix(log, Index(9)) == 8
        assert log.term_at(Index(7)) == 1
        assert log.restored(NOBODY).terms == (EntryId(Term(1), Index(8)), EntryId(Term(2), Index(10)))
        assert truncate_prefix(log, Index(100)) == 16
        assert log.first_index == 16
        assert log.term_at(Index(15)) == 2
        assert log.restored(NOBODY).terms == (EntryId(Term(2), Index(16)),)
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(Index(15), Index(19), bytes_max=100)
        assert caught.value.details == {"start": 16, "end": 20}
        assert log.read(Index(16), Index(19), bytes_max=1 << 20).last == 19
        assert log.restored(NOBODY).snapshot == EntryId(Term(2), Index(15))

    def test_what_is_not_durable_is_not_deleted_from_the_front(self, log: LogStorage) -> None:
        fill(log, 20)
        assert truncate_prefix(log, Index(100)) == 0
        sync_written(log)
        assert truncate_prefix(log, Index(100)) == 16

    def test_terms_are_known_for_every_entry(self, log: LogStorage) -> None:
        for epoch in (1, 3, 7):
            fill(log, 4, records=2, epoch=epoch)
        assert [log.term_at(Index(index)) for index in (-1, 0, 7, 8, 15, 16, 23)] == [0, 1, 1, 3, 3, 7, 7]
        assert log.restored(NOBODY).terms == (
            EntryId(Term(1), Index(0)),
            EntryId(Term(3), Index(8)),
            EntryId(Term(7), Index(16)),
        )
        with pytest.raises(OffsetOutOfRange):
            log.term_at(Index(24))

    # requirement: L6
    def test_a_time_is_found_even_when_timestamps_go_back_and_forth(self, log: LogStorage) -> None:
        times = [50, 10, 20, 90, 30, 30, 70, 120, 5, 5, 5, 119, 200, 1, 150, 300, 2, 2, 2, 2]
        for base, timestamp_ms in enumerate(times):
            log.append([storage_batch(base, timestamp_ms=timestamp_ms)])
        for wanted in range(0, 310, 5):
            first = next(((at, time) for at, time in enumerate(times) if time >= wanted), None)
            assert index_at_time(log, wanted) == first

    @pytest.mark.parametrize("count", [1, 3, 30])
    def test_headers_go_back_to_the_beginning(self, log: LogStorage, count: int) -> None:
        fill(log, 20, records=2)
        for last in range(40):
            part, at = log.part(Index(last), 1), last
            while at >= part.first_index:
                found = part.headers_back(Index(at), count)
                assert [header.last_offset for header in found] == list(range(at | 1, 0, -2))[: len(found)]
                at = found[-1].base_offset - 1

    # requirement: L6
    def test_a_time_is_not_found_below_the_first_index(self, log: LogStorage) -> None:
        for base, timestamp_ms in enumerate([90, *[10] * 18, 80]):
            log.append([storage_batch(base, timestamp_ms=timestamp_ms)])
        assert index_at_time(log, 70) == (0, 90)
        assert index_at_time(log, 70, Index(1)) == (19, 80)
        assert index_at_time(log, 85, Index(1)) is None
        sync_written(log)
        assert truncate_prefix(log, Index(19)) > 0
        assert index_at_time(log, 70) == (19, 80)

    # requirement: L6
    def test_no_time_is_that_of_what_brokers_write_for_themselves(self, log: LogStorage) -> None:
        for base, timestamp_ms in enumerate([900, 10, 20, 900, 30, 900, 40]):
            of_user = storage_batch(base, timestamp_ms=timestamp_ms)
            log.append([leader_change(base, timestamp_ms) if timestamp_ms == 900 else of_user])
        assert [index_at_time(log, wanted) for wanted in (5, 15, 25, 35)] == [
            (1, 10),
            (2, 20),
            (4, 30),
            (6, 40),
        ]
        assert index_at_time(log, 41) is None

    def test_hard_state_and_commit_hint_are_restored(self, log: LogStorage) -> None:
        fill(log, 4)
        log.save_hard_state(HardState(Term(11), NodeId(3)))
        log.note_commit_index(Index(2))
        log.note_commit_index(Index(1))
        sync_written(log)
        restored = log.restored(NOBODY)
        assert restored.hard_state == HardState(Term(11), NodeId(3))
        assert restored.commit_hint == 2
        assert restored.last == EntryId(Term(1), Index(3))
        assert restored.membership is NOBODY

    def test_a_change_of_hard_state_alone_asks_for_a_sync(self, log: LogStorage) -> None:
        sync_written(log)
        assert log.take_sync() is None
        log.save_hard_state(HardState(Term(10), NodeId(2)))
        assert log.take_sync() is not None

    def test_the_newest_checkpoint_is_kept_and_none_above_the_log_is_given(self, log: LogStorage) -> None:
        assert log.load_checkpoint() is None
        fill(log, 4)
        sync_written(log)
        save_checkpoint(log, Index(1), b"old")
        save_checkpoint(log, Index(3), b"new")
        assert log.load_checkpoint() == (3, b"new")
        truncate_suffix(log, Index(3))
        assert log.load_checkpoint() is None

    def test_an_empty_append_changes_nothing(self, log: LogStorage) -> None:
        log.append([])
        assert log.last_index == -1

    def test_close_is_idempotent(self, log: LogStorage) -> None:
        fill(log, 1)
        carry_out(log.close_change(None))
        carry_out(log.close_change(None))


def fill(log: LogStorage, batches: int, *, records: int = 1, epoch: int = 1) -> None:
    for _ in range(batches):
        base = log.last_index + 1
        log.append([storage_batch(base, records, epoch=epoch, timestamp_ms=base * 10)])


def content(log: LogStorage) -> bytes:
    return log.read(log.first_index, log.last_index, bytes_max=1 << 30).read()
