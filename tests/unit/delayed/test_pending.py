"""Pending messages in columns: they are what a dict of them would be, in the same bytes on every replica."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from delayed.pending import SHARDS, Pending, Waiting
from delayed.state import DelayedState

TOPICS = ("orders", "mail")


def id_of(number: int) -> bytes:
    return bytes([number * 37 % 5]) + number.to_bytes(11, "big")


def message(rng: Random) -> Waiting:
    return Waiting(
        rng.randrange(-1, 1 << 40), rng.randrange(-1, 1 << 40), rng.randrange(1 << 20), rng.choice(TOPICS), 0
    )


def restored(pending: Pending) -> Pending:
    data = b"".join(pending.columns())
    return Pending.restored(pending.targets, pending.counts, memoryview(data))


def same(pending: Pending, wanted: dict[bytes, Waiting], changed: set[bytes]) -> bool:
    return (
        dict(pending) == wanted
        and len(pending) == len(wanted)
        and {id_ for id_ in pending if pending.is_changed(id_)} == changed
    )


# requirement: A3
@pytest.mark.parametrize("seed", range(30))
def test_changes_are_those_of_a_dict_and_copies_are_apart(seed: int) -> None:
    rng = Random(seed)
    pending, wanted, changed = Pending(), dict[bytes, Waiting](), set[bytes]()
    copies: list[tuple[Pending, dict[bytes, Waiting], set[bytes]]] = []
    for _ in range(300):
        id_, step = id_of(rng.randrange(40)), rng.random()
        if step < 0.5:
            wanted[id_] = message(rng)
            pending.put(id_, wanted[id_])
            changed.discard(id_)
        elif step < 0.75:
            pending.remove(id_)
            wanted.pop(id_, None)
            changed.discard(id_)
        elif id_ in wanted:
            wanted[id_] = msgspec.structs.replace(wanted[id_], due_ms=rng.randrange(1 << 40))
            pending.change(id_, wanted[id_].due_ms)
            changed.add(id_)
        if step > 0.97:  # the original is not changed any more, as that of a leader by others
            copies.append((pending, dict(wanted), set(changed)))
            pending = pending.copy()
        assert pending.find(id_) == wanted.get(id_)
    assert same(pending, wanted, changed)
    assert same(restored(pending), wanted, changed)
    for copied, then, then_changed in copies:
        assert same(copied, then, then_changed)


# requirement: A3
@pytest.mark.parametrize("seed", range(10))
def test_the_bytes_do_not_depend_on_messages_that_came_and_went(seed: int) -> None:
    """Compaction leaves them out of the log of one replica, and not yet of another."""
    rng = Random(seed)
    rows = {id_of(number): message(rng) for number in range(60)}
    gone = set(rng.sample(sorted(rows), 30))
    whole, compacted, third = Pending(), Pending(), Pending()
    for id_, one in rows.items():
        whole.put(id_, one if id_ not in gone else msgspec.structs.replace(one, topic="deleted"))
        if id_ not in gone:
            compacted.put(id_, one)
    for id_ in rng.sample(sorted(gone), len(gone)):
        whole.remove(id_)
        if rng.random() < 0.1:
            whole = restored(whole)
    third = restored(compacted)
    for one in (whole, third):
        assert (one.targets, one.counts) == (compacted.targets, compacted.counts)
        assert b"".join(one.columns()) == b"".join(compacted.columns())


# requirement: A3
def test_ids_behind_another_are_found_in_order() -> None:
    pending = Pending()
    ids = sorted(id_of(number) for number in range(50))
    for place, id_ in enumerate(ids):
        pending.put(id_, Waiting(0, 0, 1, TOPICS[place % 2], place % 3))
    assert pending.behind(b"", None, 100) == ids
    assert pending.behind(ids[10], None, 3) == ids[11:14]
    assert pending.behind(ids[10], "mail", 3) == [ids[11], ids[13], ids[15]]
    assert pending.behind(ids[-1], None, 3) == []
    assert pending.behind(b"", "nowhere", 3) == []
    times = [time for shard in range(SHARDS) for time in pending.times_of(shard)]
    assert sorted(id_ for _, id_ in times) == ids


def test_a_snapshot_whose_parts_do_not_fit_is_refused() -> None:
    pending = Pending()
    pending.put(id_of(1), Waiting(5, 6, 7, "orders", 0))
    data = b"".join(pending.columns())
    for targets, cut in ((pending.targets, 1), ([], 0), ([*pending.targets, (1, ("more", 0))], 0)):
        with pytest.raises(ValueError, match="inconsistent columns"):
            Pending.restored(targets, pending.counts, memoryview(data)[: len(data) - cut])


# requirement: A3
def test_a_snapshot_of_the_first_version_is_read() -> None:
    one = Waiting(5, 6, 7, "orders", 2)
    first = (1, 7, [(id_of(1), one), (id_of(2), one)], [id_of(2)], [(id_of(2), "gone")], [], [], [])
    state = DelayedState()
    state.restore(msgspec.msgpack.encode(first))
    assert dict(state.waiting) == {id_of(1): one, id_of(2): one}
    assert [state.waiting.is_changed(id_of(number)) for number in (1, 2)] == [False, True]
    assert (state.producer_id, state.failed) == (7, {id_of(2): "gone"})
    again = DelayedState()
    again.restore(state.snapshot())
    assert again.snapshot() == state.snapshot()
    with pytest.raises(ValueError, match="version 9"):
        state.restore(msgspec.msgpack.encode((9, *first[1:])))
