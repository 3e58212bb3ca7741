"""Snapshots of a partition's groups: the work of one, and that it does not depend on the way to a state."""

from __future__ import annotations

import msgspec
import pytest

from groups.records import (
    KINDS,
    CommittedOffset,
    Group,
    GroupKey,
    Key,
    OffsetKey,
    TransactionKey,
    TransactionOffsets,
    Value,
)
from groups.state import GroupsState
from raftlog.hosting import snapshot_rows
from raftlog.hosting.snapshot_rows import UNSORTED_MIN, SnapshotRows
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import build_batch


def offset(value: int) -> CommittedOffset:
    return CommittedOffset(offset=value, topic_id="t1")


def waiting(value: int) -> TransactionOffsets:
    return TransactionOffsets(epoch=3, transaction="copy@7.3", offsets=(("orders", 1, offset(value)),))


def apply(target: GroupsState, *rows: tuple[Key, Value | None]) -> None:
    data = build_batch([KINDS.record_of(*row) for row in rows], codec=Codec.NONE, timestamp_ms=0)
    for batch in split_batches(data):
        target.apply(batch)


def rows(count: int) -> list[tuple[Key, Value | None]]:
    return [(OffsetKey(f"g{number % 7}", "orders", number), offset(number)) for number in range(count)]


def test_a_snapshot_encodes_and_decodes_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = GroupsState()
    apply(groups, (GroupKey("g0"), Group(generation=1)), *rows(3_000))
    work: list[object] = []
    monkeypatch.setattr(KINDS, "record_of", lambda *row: work.append(row))
    monkeypatch.setattr(KINDS, "decoded", lambda *row: work.append(row))
    snapshot = groups.snapshot()
    assert len(snapshot) > 3_000
    assert work == []


def test_the_way_to_a_state_does_not_show_in_its_snapshot() -> None:
    direct, detour, put = GroupsState(), GroupsState(), GroupsState()
    wanted = rows(2_500)
    apply(direct, *wanted)
    for key, value in reversed(wanted):
        put.put(key, value)
    apply(detour, *((key, offset(7)) for key, _ in reversed(wanted)))
    detour.snapshot()
    apply(detour, *((key, None) for key, _ in wanted[::3]), (OffsetKey("gone", "orders", 1), offset(1)))
    apply(detour, (OffsetKey("gone", "orders", 1), None), *wanted)
    added: tuple[Key, Value] = (TransactionKey("g1", 7), waiting(8))
    apply(detour, (TransactionKey("g1", 7), waiting(9)), (TransactionKey("g1", 8), waiting(9)), added)
    apply(detour, (TransactionKey("g1", 8), None))
    apply(direct, added)
    put.put(*added)
    assert direct.snapshot() == detour.snapshot() == put.snapshot()
    restored = GroupsState()
    restored.restore(direct.snapshot())
    assert restored.snapshot() == direct.snapshot()
    assert restored.offsets == direct.offsets
    assert restored.transactions == direct.transactions == {"g1": {7: waiting(8)}}
    assert restored.pending == direct.pending == detour.pending == {"g1": {("orders", 1): 7}}
    assert list(restored.items()) == list(direct.items())


class CountedKey(bytes):
    """Counts comparisons."""

    compared = 0

    def __lt__(self, other: bytes) -> bool:
        CountedKey.compared += 1
        return bytes(self) < bytes(other)


class EncoderOfCountedKeys:
    """As the real one, which takes no subclasses."""

    def encode(self, row: tuple[bytes, bytes]) -> bytes:
        return msgspec.msgpack.encode((bytes(row[0]), row[1]))


def test_a_snapshot_compares_each_key_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_rows, "_ENCODER", EncoderOfCountedKeys())
    kept, count = SnapshotRows(), 20 * UNSORTED_MIN
    for number in range(count):
        kept.keep(CountedKey(b"%06d" % (number * 7_919 % count)), b"v")
    kept.joined()
    kept.keep(CountedKey(b"one more"), b"v")
    CountedKey.compared = 0
    keys = [key for key, _ in msgspec.msgpack.decode(kept.joined(), type=list[tuple[bytes, bytes]])]
    assert keys == sorted(keys)
    assert len(keys) == count + 1
    assert CountedKey.compared <= 1.1 * count


# requirement: A7
def test_keys_that_come_and_go_take_no_memory() -> None:
    """As those of jobs do, thousands of times between two snapshots."""
    kept = SnapshotRows()
    kept.keep(b"z", b"stays")
    for _ in range(20 * UNSORTED_MIN):
        kept.keep(b"a", b"comes")
        kept.keep(b"a", None)
    assert len(kept._order) <= 2 * UNSORTED_MIN
    kept.keep(b"a", b"stays")
    once = SnapshotRows()
    once.keep(b"a", b"stays")
    once.keep(b"z", b"stays")
    assert kept.joined() == once.joined()
