"""Rows are read from a snapshot one by one, as any encoder of msgpack writes them."""

from __future__ import annotations

import msgspec
import pytest

from raftlog.hosting.snapshot_rows import RUN, SnapshotRows, rows_in

SIZES = (0, 1, 15, 255, 256, 65_535, 65_536)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_each_number_of_rows(count: int) -> None:
    rows = [(b"%d" % number, b"value") for number in range(count)]
    assert [*rows_in(b"??" + msgspec.msgpack.encode(rows), 2)] == rows


def test_keys_and_values_of_each_size() -> None:
    rows = [(bytes(key), bytes(value)) for key in SIZES for value in SIZES]
    assert [*rows_in(msgspec.msgpack.encode(rows), 0)] == rows


def test_what_is_no_snapshot_is_refused() -> None:
    whole = msgspec.msgpack.encode([(b"key", b"value"), (b"another", b"")])
    for damaged in (*(whole[:end] for end in range(len(whole))), whole + b"\0"):
        with pytest.raises(ValueError, match="a snapshot"):
            list(rows_in(damaged, 0))
    for other in ([(b"key",)], [(b"key", None)], [("key", b"value")], {b"key": b"value"}):
        with pytest.raises(ValueError, match="a snapshot"):
            list(rows_in(msgspec.msgpack.encode(other), 0))


def test_many_rows_are_arranged_by_what_they_say() -> None:
    kept = SnapshotRows()
    for number in range(2 * RUN + 1):
        kept.keep(b"%06d" % number, b"%06d" % (number * 7_919 % (2 * RUN + 1) // 2))
    kept.arrange(lambda row: int(row[-6:]))
    values = [row[-6:] for row in kept]
    assert values == sorted(values)
    assert len(values) == 2 * RUN + 1
