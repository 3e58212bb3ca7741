"""Small files that are kept twice: slots of hard state, states, and twin files."""

from __future__ import annotations

import contextlib
import errno
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from raftlog.core.membership import Membership
from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.storage import twin_file
from raftlog.storage.durable_state import DurableState, SlotsInDoubt, found_slots, newest_slot
from raftlog.storage.recovery import has_lived
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.storage.slots import (
    SLOT_BYTES,
    SLOT_NAMES,
    Slot,
    SlotError,
    encode_slot,
    initial_state,
    read_slot,
)
from raftlog.storage.state_files import StateFiles
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.testing.log_changes import truncate_prefix
from raftlog.types import EntryId, Index, NodeId, Term
from tests.helpers.log_files import BATCH, DIRECTORY, append, log_with, open_log, segment, sync, write_raw

PATHS = [f"{DIRECTORY}/{name}" for name in SLOT_NAMES]
NOBODY = Membership(frozenset())
VOTE = HardState(Term(7), NodeId(2))


def voted() -> FakeFilesystem:
    """A replica whose last deed was a vote."""
    filesystem = FakeFilesystem()
    log = log_with(filesystem, 3)
    log.save_hard_state(VOTE)
    sync(log)
    filesystem.restart()
    return filesystem


def hard_state(log: SegmentedLog) -> HardState:
    return log.restored(NOBODY).hard_state


def test_a_slot_that_is_torn_twice_is_torn_and_not_damaged() -> None:
    filesystem = voted()
    newest = newest_slot(found_slots(filesystem, DIRECTORY))
    assert newest is not None
    (other,) = (path for path in PATHS if read_slot(filesystem, path) != newest)
    first = encode_slot(newest.sequence + 1, replace(newest.state, commit_index=Index(1)))
    second = encode_slot(newest.sequence + 2, replace(newest.state, hard_state=HardState(Term(12), None)))
    torn = second[:40] + first[40:]
    filesystem.overwrite(other, torn)
    assert read_slot(filesystem, other) is SlotError.TORN
    state = DurableState.open(filesystem, DIRECTORY, is_new=False)
    state.set_hard_state(HardState(Term(9), NodeId(3)))
    state.save()
    third = filesystem.read_file(other)
    for cut in range(SLOT_BYTES):
        filesystem.overwrite(other, third[:cut] + torn[cut:])
        assert read_slot(filesystem, other) is not SlotError.LOST, cut


# requirement: F6
def test_a_creation_that_was_cut_short_is_finished_as_that_of_a_replica_that_rejoins() -> None:
    filesystem = FakeFilesystem()
    filesystem.make_directories(DIRECTORY)
    filesystem.capacity_bytes = SLOT_BYTES  # one slot is whole, the other one empty
    with pytest.raises(OSError, match="no room"):
        DurableState.open(filesystem, DIRECTORY, is_new=True, is_rejoining=True)
    filesystem.capacity_bytes = None
    assert DurableState.open(filesystem, DIRECTORY, is_new=True).state.hard_state.is_rejoining


# requirement: M3
@pytest.mark.parametrize("path", PATHS)
def test_a_flipped_bit_in_a_slot_is_turned_back(path: str) -> None:
    for bit in range(0, 8 * SLOT_BYTES, 5):
        filesystem = voted()
        filesystem.flip_bit(path, bit >> 3, bit & 7)
        assert hard_state(open_log(filesystem)) == VOTE, bit


# requirement: M3
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("damage", [None, 40, bytes(SLOT_BYTES), b"x" * SLOT_BYTES, bytes(16)])
def test_a_lost_slot_may_have_held_a_vote_so_the_replica_does_not_open(
    path: str, damage: bytes | int | None
) -> None:
    filesystem = voted()
    if damage is None:
        filesystem.remove(path)
    elif isinstance(damage, int):
        filesystem.open(path).truncate(damage)
    else:
        write_raw(filesystem, path, 0, damage)
    for _ in range(2):
        with pytest.raises(SlotsInDoubt, match="a vote may be forgotten"):
            open_log(filesystem)
    newest = newest_slot(found_slots(filesystem, DIRECTORY))
    assert newest is not None
    assert newest.state.hard_state == VOTE, "a vote stands in both slots soon after it was given"


# requirement: M3
@pytest.mark.parametrize("lost", [*PATHS, None])
def test_a_replica_has_lived_unless_its_creation_was_cut_short(lost: str | None) -> None:
    filesystem = voted()
    if lost is not None:
        filesystem.remove(lost)
    assert has_lived(filesystem, DIRECTORY)
    begun = FakeFilesystem()
    begun.make_directories(DIRECTORY)
    assert not has_lived(begun, DIRECTORY)
    begun.replace_file(PATHS[1], encode_slot(0, initial_state()))
    assert not has_lived(begun, DIRECTORY)
    begun.replace_file(f"{DIRECTORY}/{Index(7):020d}.state", b"of the time before")
    assert has_lived(begun, DIRECTORY)


def test_a_slot_that_was_cut_short_while_it_was_written_counts_for_nothing() -> None:
    old, new = initial_state(), initial_state()
    new.hard_state = VOTE
    for kept in range(SLOT_BYTES):
        filesystem = FakeFilesystem()
        filesystem.make_directories(DIRECTORY)
        file = filesystem.open(PATHS[0], create=True)
        file.append([encode_slot(4, new)[:kept] + encode_slot(2, old)[kept:]])
        found = read_slot(filesystem, PATHS[0])
        assert found is SlotError.TORN or (isinstance(found, Slot) and found.state in (old, new)), kept


def test_replaced_slots_hold_the_new_values_whichever_one_is_read() -> None:
    filesystem = voted()
    write_raw(filesystem, PATHS[1], 0, bytes(SLOT_BYTES))
    state = initial_state()
    state.hard_state = HardState(Term(9), NodeId(1))
    DurableState.replace(filesystem, DIRECTORY, state)
    assert [slot.state for slot in found_slots(filesystem, DIRECTORY) if isinstance(slot, Slot)] == [
        state
    ] * 2


# requirement: M3
@pytest.mark.parametrize("number", range(6))
def test_a_flipped_bit_in_a_leader_epoch_is_found_on_opening(filesystem: FakeFilesystem, number: int) -> None:
    """The checksum of a batch leaves it out; 3 becomes 2 here, which neither falls nor passes the term."""
    log = log_with(filesystem, 2, epoch=2)
    log.save_hard_state(HardState(Term(3), None))
    append(log, 4, epoch=3)
    sync(log)
    filesystem.restart()
    filesystem.flip_bit(segment(0), number * BATCH + 15)
    with pytest.raises(LogCorrupt):
        open_log(filesystem)


def test_what_was_promised_is_compared_after_the_log_start_has_moved(filesystem: FakeFilesystem) -> None:
    log = log_with(filesystem, 12, epoch=1)
    log.save_hard_state(HardState(Term(2), None))
    append(log, 12, epoch=2)
    sync(log)
    truncate_prefix(log, Index(16))
    append(log, 3, epoch=2)
    sync(log)
    filesystem.restart()
    log = open_log(filesystem)
    assert (log.first_index, log.last_index) == (16, 26)


def test_a_number_that_nobody_can_have_counted_to_is_damage() -> None:
    filesystem = voted()
    data = bytearray(filesystem.read_file(PATHS[0]))
    data[4:12] = b"\xff" * 8
    filesystem.overwrite(PATHS[0], bytes(data))
    assert read_slot(filesystem, PATHS[0]) is SlotError.LOST


def test_a_slot_with_such_a_number_and_a_right_checksum_is_damage_too() -> None:
    filesystem = voted()
    filesystem.overwrite(PATHS[0], encode_slot((1 << 64) - 1, initial_state()))
    assert read_slot(filesystem, PATHS[0]) is SlotError.LOST


STATES = "/data/orders-0/Partition-0"
PATIENCE_S = 10.0


class HangingDisk(FakeFilesystem):
    """Writes no file until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.make_directories(STATES)
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def replace_file(self, path: str, data: bytes) -> None:
        """Late."""
        self.has_begun.set()
        assert self.may_go_on.wait(PATIENCE_S)
        super().replace_file(path, data)


def at(index: int) -> EntryId:
    return EntryId(Term(1), Index(index))


def test_the_owner_of_a_log_does_not_wait_for_a_state_that_is_being_written() -> None:
    disk = HangingDisk()
    states = StateFiles(disk, STATES)
    states.keep(at(9), b"first")
    with ThreadPoolExecutor(2) as threads:

        def promptly(act: Callable[[], object]) -> object:
            return threads.submit(act).result(PATIENCE_S / 4)

        flushing = threads.submit(states.flush)
        try:
            assert disk.has_begun.wait(PATIENCE_S)
            assert states.has(Index(10))  # nobody makes the snapshot of the machine again
            promptly(lambda: states.keep(at(19), b"second"))
            promptly(lambda: states.keep(at(9), b"first, made again"))
            assert promptly(lambda: states.standing) == ()
        finally:
            disk.may_go_on.set()
        flushing.result(PATIENCE_S)
    assert not states.is_due
    assert states.standing == (10, 20)
    found = StateFiles(disk, STATES)
    assert (found.load(Index(10)), found.load(Index(20))) == (b"first, made again", b"second")


def test_a_state_that_finds_no_room_is_not_tried_again() -> None:
    disk = FakeFilesystem()
    disk.make_directories(STATES)
    states = StateFiles(disk, STATES)
    states.keep(at(9), b"first")
    disk.capacity_bytes = disk.used_bytes
    states.flush()
    assert not states.is_due
    assert not states.has(Index(10))


BASES = tuple(Index(base) for base in range(10, 70, 10))


@pytest.mark.parametrize("are_written", [True, False])
@pytest.mark.parametrize(
    ("remove", "left"),
    [
        (lambda states: states.remove_between(20, 40), {10, 50, 60}),
        (lambda states: states.remove_below(Index(40)), {40, 50, 60}),
    ],
)
def test_states_go_with_the_segments_that_they_stand_before(
    are_written: bool, remove: Callable[[StateFiles], None], left: set[int]
) -> None:
    disk = FakeFilesystem()
    disk.make_directories(STATES)
    states = StateFiles(disk, STATES)
    for base in BASES:
        (states.save if are_written else states.keep)(at(base - 1), b"%d" % base)
    assert {base for base in BASES if states.has(base)} == set(BASES)
    remove(states)
    assert {base for base in BASES if states.has(base)} == left
    states.flush()
    for found in (states, StateFiles(disk, STATES)):
        assert set(found.standing) == left
        newest = found.newest(lambda entry: entry.index < 50)
        assert newest == (max(base for base in left if base <= 50) - 1, b"%d" % max(left - {60}))


FILES = ("/data/name", "/data/name.twin")

Damage = Callable[[bytes], bytes | None]
DAMAGES: dict[str, Damage] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[:-2],
    "a flipped digit": lambda data: data.replace(b"second", b"secone"),
    "a flipped number": lambda data: data.replace(b"[1,", b"[7,"),
    "zeros": lambda data: bytes(len(data)),
    "garbage": lambda data: b"\xff\n\n\n" + data,
}


def kept(*values: str) -> FakeFilesystem:
    filesystem = FakeFilesystem()
    filesystem.make_directories("/data")
    for value in values:
        twin_file.keep(filesystem, "/data", "name", value)
    return filesystem


def load(filesystem: FakeFilesystem) -> str | None:
    return twin_file.load(filesystem, "/data", "name", str)


def damaged(filesystem: FakeFilesystem) -> list[str]:
    return twin_file.damaged(filesystem, "/data", "name")


def test_the_newest_value_is_found_and_nothing_where_nothing_was_kept() -> None:
    assert load(kept()) is None
    assert load(kept("first", "second")) == "second"
    assert damaged(kept()) == damaged(kept("first", "second")) == []


# requirement: F6
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("path", FILES)
def test_damage_to_one_file_is_seen_and_repaired_from_the_other(path: str, damage: Damage) -> None:
    filesystem = kept("first", "second")
    whole = filesystem.read_file(path)
    filesystem.overwrite(path, damage(whole))
    assert damaged(filesystem) == [path]
    assert load(filesystem) == "second"
    assert filesystem.read_file(path) == whole
    assert damaged(filesystem) == []


@pytest.mark.parametrize("path", FILES)
def test_an_older_copy_that_comes_back_loses(path: str) -> None:
    filesystem = kept("first")
    older = filesystem.read_file(path)
    twin_file.keep(filesystem, "/data", "name", "second")
    filesystem.overwrite(path, older)
    assert damaged(filesystem) == [path]
    assert load(filesystem) == "second"


def test_a_file_of_another_name_does_not_pass_for_this_one() -> None:
    filesystem = kept("first")
    twin_file.keep(filesystem, "/data", "other", "intruder")
    twin_file.keep(filesystem, "/data", "other", "newer intruder")
    filesystem.overwrite(FILES[0], filesystem.read_file("/data/other"))
    assert load(filesystem) == "first"


def test_the_loss_of_both_is_told() -> None:
    filesystem = kept("first")
    for path in FILES:
        filesystem.flip_bit(path, 5)
    assert damaged(filesystem) == list(FILES)
    with pytest.raises(LogCorrupt, match="/data/name and its twin are damaged"):
        load(filesystem)


# requirement: F6
@pytest.mark.parametrize("path", FILES)
def test_a_file_that_the_disk_cannot_read_is_written_again(path: str) -> None:
    filesystem = kept("first", "second")
    filesystem.fails_read = lambda read: read == path
    assert damaged(filesystem) == [path]
    assert load(filesystem) == "second"
    filesystem.fails_read = lambda read: False
    assert damaged(filesystem) == []


def test_two_files_that_the_disk_cannot_read_are_no_loss_of_both() -> None:
    filesystem = kept("first")
    filesystem.fails_read = lambda read: True
    with pytest.raises(OSError, match="fails on purpose") as raised:
        load(filesystem)
    assert raised.value.errno == errno.EIO
    with pytest.raises(OSError, match="fails on purpose"):
        twin_file.keep(filesystem, "/data", "name", "second")
    filesystem.fails_read = lambda read: False
    assert load(filesystem) == "first"


def test_a_full_disk_leaves_the_damage_and_gives_the_value() -> None:
    filesystem = kept("first")
    filesystem.overwrite(FILES[1], None)
    filesystem.capacity_bytes = filesystem.used_bytes
    assert load(filesystem) == "first"
    assert damaged(filesystem) == [FILES[1]]


def test_a_power_loss_between_the_two_writes_leaves_the_new_value_or_the_old_one() -> None:
    for operation in range(1, 12):
        filesystem = kept("first")
        filesystem.crash_after_changes = operation
        with contextlib.suppress(PowerLost):
            twin_file.keep(filesystem, "/data", "name", "second")
        filesystem.lose_power(random.Random(operation))
        assert load(filesystem) in ("first", "second")
        assert damaged(filesystem) == []
