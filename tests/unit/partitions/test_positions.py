"""Where a read begins: times and counts among records of users, and what brokers write between them."""

from __future__ import annotations

from partitions.replica.positions import find, timestamp_at
from partitions.values import AtTime, Start
from raftlog.core.ready import HardState
from raftlog.records.batch import checksum, stamp
from raftlog.testing.memory_log import MemoryLog
from raftlog.types import Index, Offset, Term
from tests.helpers.orders import batch_of
from tests.helpers.storage_batches import leader_change

WALL_MS = 1_700_000_000_000


# requirement: M2
def test_a_time_is_that_of_a_users_record_and_no_other_has_one() -> None:
    """A change of leaders has the time of the wall, and the records around it those of their producers."""
    log = MemoryLog()
    log.save_hard_state(HardState(Term(1), None))
    for first, timestamp_ms in enumerate((100, 200, 300)):
        log.append([leader_change(2 * first, WALL_MS)])
        body = batch_of(b"value", timestamp_ms=timestamp_ms)
        log.append([stamp(body, base_offset=2 * first + 1, leader_epoch=1, append_time_ms=None)])
    end = Index(5)
    found = {wanted: find(log, end, AtTime(wanted)) for wanted in (50, 100, 101, 250, 301, WALL_MS)}
    assert found == {50: 1, 100: 1, 101: 3, 250: 5, 301: 6, WALL_MS: 6}
    assert [timestamp_at(log, end, Offset(at)) for at in range(7)] == [None, 100, None, 200, None, 300, None]
    assert timestamp_at(log, end, find(log, end, Start.EARLIEST)) is None


def test_a_batch_that_is_no_records_has_a_place_and_a_time() -> None:
    log = MemoryLog()
    log.save_hard_state(HardState(Term(1), None))
    body = bytearray(batch_of(b"value", timestamp_ms=200))
    body[61:64] = b"\xff" * 3
    body[17:21] = checksum(body).to_bytes(4, "big")
    log.append([stamp(body, base_offset=0, leader_epoch=1, append_time_ms=None)])
    assert find(log, Index(0), AtTime(150)) == 0
    assert timestamp_at(log, Index(0), Offset(0)) == 200
