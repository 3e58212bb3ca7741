"""The files of a log, read without opening it: as a table, and whether they are sound."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest

from raftlog.core.ready import HardState
from raftlog.repair.copies import difference, misfit
from raftlog.repair.segment_writer import Lacking, SegmentWriter, clear_sidecars, plan
from raftlog.repair.verify import MissingRange, VerifyReport, examine
from raftlog.storage.durable_state import DurableState
from raftlog.storage.inspect import inspect_segment
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.testing.log_changes import save_checkpoint, truncate_suffix
from raftlog.types import EntryId, Index, NodeId, Term
from tests.helpers.log_files import (
    BATCH,
    DIRECTORY,
    append,
    log_with,
    open_log,
    segment,
    sync,
    sync_written,
    write_raw,
)
from tests.helpers.storage_batches import storage_batch


def filled(*, closes: bool = True) -> FakeFilesystem:
    """Segments 0..7, 8..15, 16..19 with terms 1 (0..9), 3 (10..17) and 4."""
    filesystem = FakeFilesystem()
    log = log_with(filesystem, 10, epoch=1)
    for term, count in ((3, 8), (4, 2)):
        log.save_hard_state(HardState(Term(term), NodeId(1)))
        append(log, count, epoch=term)
    sync(log)
    if closes:
        log.close()
    filesystem.restart()
    return filesystem


def seen(filesystem: FakeFilesystem) -> VerifyReport:
    return examine(filesystem, DIRECTORY)


@pytest.mark.parametrize("closes", [False, True])
def test_a_sound_log_is_clean_however_it_was_left(closes: bool) -> None:
    found = seen(filled(closes=closes))
    assert found.is_clean
    assert not found.torn
    assert (found.last, found.anchor) == (19, EntryId(Term(4), Index(19)))


def copies(*logs: str, committed: int) -> tuple[FakeFilesystem, dict[NodeId, VerifyReport]]:
    """Logs of brokers 1 to 3: the term of each entry, and after a colon the term of the hard state."""
    disks = FakeFilesystem()
    for node, (terms, _, newest) in enumerate((log.partition(":") for log in logs), 1):
        filesystem = FakeFilesystem()
        log = open_log(filesystem)
        log.save_hard_state(HardState(Term(int(newest)), NodeId(1)))
        for term in terms:
            append(log, 1, epoch=int(term))
        sync_written(log)
        log.close()
        disks.load({path.replace(DIRECTORY, f"/{node}"): data for path, data in filesystem.image().items()})
    found = {NodeId(node): examine(disks, f"/{node}") for node in range(1, len(logs) + 1)}
    for report in found.values():
        known = min(committed, report.last)
        report.state = replace(report.state, commit_index=Index(known))
    return disks, found


# requirement: M3
@pytest.mark.parametrize(
    ("logs", "committed", "reason"),
    [
        (("11:1", "11:1", "1122:2"), 3, "entry 3 of term 2 is committed, but brokers [1, 2] lack it"),
        (("11:1", "11:1", "1122:2"), 1, "an entry has term 2, which brokers [1, 2] do not know"),
        (("11:1", "1133:3", "1122:3"), 3, "entry 3 of term 3 is committed, but brokers [1, 3] lack it"),
        (("11:2", "11:1", "1122:2"), 1, None),
        (("11:1", "1122:2", "1122:2"), 3, None),
    ],
)
def test_copies_of_different_times_do_not_fit_together(
    logs: tuple[str, ...], committed: int, reason: str | None
) -> None:
    _, found = copies(*logs, committed=committed)
    voters = frozenset(found)
    told = misfit(found, [voters])
    assert (None if told is None else told.reason) == reason
    assert misfit({node: seen for node, seen in found.items() if node < 2}, [voters]) is None
    assert misfit(found, []) is None


# requirement: M3
def test_different_entries_of_one_index_and_term_are_found() -> None:
    disks, found = copies("11:1", "112:2", "11:1", committed=1)
    assert difference(disks, found) is None
    other = bytes(storage_batch(1, epoch=1, body=b"ydob").data)
    disks.overwrite("/3/" + segment(0).rpartition("/")[2], bytes(storage_batch(0, epoch=1).data) + other)
    told = difference(disks, {node: examine(disks, f"/{node}") for node in found})
    assert told is not None
    assert told.reason == "entry 1 of term 1 differs between brokers [1, 2, 3]"


# requirement: M3
def test_the_epochs_file_vouches_for_no_entry_that_it_does_not_cover() -> None:
    """Entry 16 is damaged here; the newest term below it is no reason to believe that it was of that term."""
    filesystem = filled()
    filesystem.flip_bit(segment(16), 62)
    found = seen(filesystem)
    assert found.covers == 16
    assert found.holds(EntryId(Term(3), Index(15)))
    assert not found.holds(EntryId(Term(3), Index(16)))


def test_a_torn_tail_is_no_damage() -> None:
    filesystem = filled()
    write_raw(filesystem, segment(16), 4 * BATCH, bytes(storage_batch(20, epoch=4).data)[:50])
    found = seen(filesystem)
    assert found.is_clean
    assert [torn.position for torn in found.torn] == [4 * BATCH]


# requirement: M3
@pytest.mark.parametrize("base", [0, 8, 16])
@pytest.mark.parametrize("offset", range(0, BATCH, 7))
def test_a_flipped_bit_costs_one_batch_wherever_it_is(base: int, offset: int) -> None:
    filesystem = filled()
    filesystem.flip_bit(segment(base), 2 * BATCH + offset, bit=5)
    found = seen(filesystem)
    assert found.holes == [MissingRange(base + 2, base + 2)]
    damage = found.damages[0]
    assert (damage.path, damage.position, damage.end) == (segment(base), 2 * BATCH, 3 * BATCH)


# requirement: M3
def test_every_way_of_losing_a_segment_is_a_hole_of_its_entries() -> None:
    for deed in ("missing", "empty", "swapped", "older"):
        filesystem = filled()
        whole, other = filesystem.read_file(segment(8)), filesystem.read_file(segment(0))
        changed = {"missing": None, "empty": b"", "swapped": other, "older": whole[: 3 * BATCH]}[deed]
        filesystem.overwrite(segment(8), changed)
        found = seen(filesystem)
        assert found.holes == [MissingRange(11 if deed == "older" else 8, 15)], deed


def test_an_end_that_is_gone_is_a_hole_up_to_the_promise() -> None:
    filesystem = filled()
    filesystem.open(segment(16)).truncate(BATCH)
    assert seen(filesystem).holes == [MissingRange(17, 19)]


# requirement: F6
@pytest.mark.parametrize("lost", [("a", "b"), ("a",), ("b",)])
def test_with_a_slot_and_the_newest_segment_gone_nobody_knows_where_the_log_ended(
    lost: tuple[str, ...],
) -> None:
    filesystem = filled()
    for slot in lost:
        filesystem.overwrite(f"{DIRECTORY}/hard_state.{slot}", None)
    assert seen(filesystem).holes == []
    filesystem.overwrite(segment(16), None)
    assert seen(filesystem).holes == [MissingRange(16, None)]


def test_an_epochs_file_that_contradicts_batches_and_promise_is_what_is_damaged() -> None:
    filesystem = filled()
    log = open_log(FakeFilesystem())
    log.close()
    other = FakeFilesystem()
    log = log_with(other, 20, epoch=2)
    log.close()
    filesystem.overwrite(f"{DIRECTORY}/epochs", other.read_file(f"{DIRECTORY}/epochs"))
    found = seen(filesystem)
    assert [damage.path for damage in found.damages] == [f"{DIRECTORY}/epochs"]
    assert not found.holes


def repair(filesystem: FakeFilesystem) -> None:
    """As the repairer does, from a peer that has everything."""
    terms = [1] * 10 + [3] * 8 + [4] * 2
    found = seen(filesystem)
    clear_sidecars(filesystem, found)
    lacking = [Lacking(hole.first, hole.last) for hole in found.holes if hole.last is not None]
    for new in plan(found, lacking):
        writer = SegmentWriter(filesystem, DIRECTORY, new)
        for part in new.parts:
            if isinstance(part, Lacking):
                batches = [storage_batch(at, epoch=terms[at]) for at in range(part.first, part.last + 1)]
                writer.add(writer.checked(b"".join(bytes(batch.data) for batch in batches), part.last))
            else:
                writer.copy(part)
        writer.finish()


# requirement: F6
@pytest.mark.parametrize("lost", [(0, 8, 16), (8, 16), (0, 8), (0, 16)])
def test_a_log_opens_again_whichever_segments_were_lost(lost: tuple[int, ...]) -> None:
    filesystem = filled()
    for base in lost:
        filesystem.overwrite(segment(base), None)
    while not seen(filesystem).is_clean:
        repair(filesystem)
    log = open_log(filesystem)
    truncate_suffix(log, Index(12))
    filesystem.lose_power(random.Random(1))
    assert open_log(filesystem).last_index == 11


@pytest.mark.parametrize("crash_after", range(14))
def test_the_power_may_go_at_any_moment_of_a_repair(crash_after: int) -> None:
    whole = [filled().read_file(segment(base)) for base in (0, 8, 16)]
    for seed in range(6):
        filesystem = filled()
        filesystem.flip_bit(segment(0), 2 * BATCH + 70)
        filesystem.overwrite(segment(8), None)
        filesystem.open(segment(16)).truncate(BATCH + 20)
        filesystem.crash_after_changes = crash_after
        with contextlib.suppress(PowerLost):
            repair(filesystem)
        filesystem.crash_after_changes = None
        filesystem.lose_power(random.Random(seed))
        for _ in range(3):
            if not seen(filesystem).is_clean:
                repair(filesystem)
        log = open_log(filesystem)
        assert (log.first_index, log.last_index, log.recovery.torn_tail) == (0, 19, None)
        held = [filesystem.read_file(segment(base)).rstrip(b"\0") for base in (0, 8, 16)]
        assert held == [each.rstrip(b"\0") for each in whole]


def test_new_values_in_the_slots_survive_a_power_loss_between_any_two_changes() -> None:
    for crash_after in range(16):
        for seed in range(6):
            filesystem = filled()
            found = seen(filesystem)
            before = found.state.hard_state
            found.state.hard_state = HardState(Term(9), NodeId(2))
            filesystem.crash_after_changes = crash_after
            with contextlib.suppress(PowerLost):
                DurableState.replace(filesystem, DIRECTORY, found.state)
            filesystem.crash_after_changes = None
            filesystem.lose_power(random.Random(seed))
            after = seen(filesystem)
            assert after.is_clean
            assert after.state.hard_state in (before, HardState(Term(9), NodeId(2)))


def test_a_damaged_state_goes_where_an_older_one_reaches_the_log() -> None:
    filesystem = filled()
    log = open_log(filesystem)
    save_checkpoint(log, Index(12), b"state")
    log.close()
    filesystem.flip_bit(f"{DIRECTORY}/snapshot", 15)
    found = seen(filesystem)
    assert [damage.path for damage in found.damages] == [f"{DIRECTORY}/snapshot"]
    clear_sidecars(filesystem, found)
    assert seen(filesystem).is_clean
    assert open_log(filesystem).load_checkpoint() is None


def test_a_state_that_belongs_to_another_segment_is_damage() -> None:
    filesystem = filled()
    log = open_log(filesystem)
    for base in (8, 16):
        at = Index(base - 1)
        log.states.save(EntryId(log.term_at(at), at), b"state below %d" % base)
    log.close()
    other = filesystem.read_file(f"{segment(8).removesuffix('.log')}.state")
    filesystem.overwrite(f"{segment(16).removesuffix('.log')}.state", other)
    found = seen(filesystem)
    assert [damage.path for damage in found.damages] == [f"{segment(16).removesuffix('.log')}.state"]
    clear_sidecars(filesystem, found)
    assert seen(filesystem).is_clean


def test_a_bit_that_is_turned_back_on_reading_is_told() -> None:
    filesystem = filled()
    filesystem.flip_bit(f"{DIRECTORY}/hard_state.a", 9, 3)
    found = seen(filesystem)
    assert found.is_clean
    assert [slot.path for slot in found.flipped] == [f"{DIRECTORY}/hard_state.a"]


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
        "position": 65,
        "offsets": "8..8",
        "leader_epoch": 7,
        "codec": 0,
        "records": 1,
        "size_bytes": 65,
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
    assert "DAMAGED: crc: " in str(last.cells()["crc"])


def test_a_gap_garbage_and_a_short_end_are_damage() -> None:
    for tail, word in ((data(9), "in place of 1"), (bytes(100) + b"x", "magic"), (data(1)[:50], "too few")):
        *_, last = inspect_segment(segment_of(data(0), tail), "/data/0.log")
        assert word in (last.problem or "")
