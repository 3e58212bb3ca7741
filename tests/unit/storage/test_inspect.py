"""A segment file as a table."""

from __future__ import annotations

from raftlog.storage.inspect import inspect_segment
from raftlog.testing.fake_filesystem import FakeFilesystem
from tests.helpers.storage_batches import storage_batch


def segment_of(*batches: bytes) -> FakeFilesystem:
    filesystem = FakeFilesystem()
    filesystem.make_directories("/data")
    filesystem.open("/data/0.log", create=True).append(list(batches))
    return filesystem


def data(base: int, count: int = 1) -> bytes:
    return bytes(storage_batch(base, count, epoch=7, timestamp_ms=base).data)


def test_each_batch_is_a_row() -> None:
    rows = list(inspect_segment(segment_of(data(5, 3), data(8)), "/data/0.log"))
    assert [row.cells()["offsets"] for row in rows] == ["5..7", "8..8"]
    assert rows[1].cells() == {
        "position": "65",
        "offsets": "8..8",
        "epoch": "7",
        "codec": "0",
        "records": "1",
        "bytes": "65",
        "timestamps": "8..8",
        "producer": "-",
        "kind": "data",
        "crc": "ok",
    }
    assert all(row.crc_ok for row in rows)


# requirement: M3
def test_the_first_damage_ends_the_table_and_says_what_it_is() -> None:
    broken = bytearray(data(1))
    broken[-1] ^= 1
    *sound, last = inspect_segment(segment_of(data(0), bytes(broken), data(2)), "/data/0.log")
    assert [row.crc_ok for row in sound] == [True]
    assert (last.position, last.crc_ok) == (65, False)
    assert "DAMAGED: crc: " in last.cells()["crc"]


def test_a_gap_garbage_and_a_short_end_are_damage() -> None:
    for tail, word in ((data(9), "in place of 1"), (bytes(100) + b"x", "magic"), (data(1)[:50], "too few")):
        *_, last = inspect_segment(segment_of(data(0), tail), "/data/0.log")
        assert word in (last.problem or "")
