"""Term, vote and newest entry outlive a replica that is deleted."""

from __future__ import annotations

import pytest

from raftlog.clock import SystemClock
from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.storage import tombstones
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.storage.tombstones import DeletePermit, Tombstone
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import BEFORE_LOG, EntryId, GroupId, Index, NodeId, Term
from tests.helpers.storage_batches import storage_batch

GROUP = GroupId(7)
OLD = Tombstone(HardState(Term(9), NodeId(1)), EntryId(Term(8), Index(100)))


FAR = EntryId(Term(99), Index(99))


def replica(filesystem: FakeFilesystem, state: HardState, records: int = 0) -> None:
    log = SegmentedLog.open(filesystem, "/data/replica", LogSettings(), SystemClock())
    log.save_hard_state(state)
    if records:
        log.append([storage_batch(0, records, epoch=4)])
    sync = log.take_sync()
    assert sync is not None
    sync.run()
    log.close()


def bury(filesystem: FakeFilesystem, end: EntryId = FAR, term: int = 99) -> None:
    leader = DeletePermit(Term(term), end)
    tombstones.write(filesystem, "/data", GROUP, "/data/replica", SystemClock(), leader, NodeId(4))


@pytest.mark.parametrize("vote", [NodeId(3), None])
def test_what_a_deleted_replica_has_promised_is_found_again(vote: NodeId | None) -> None:
    filesystem = FakeFilesystem()
    replica(filesystem, HardState(Term(5), vote), records=3)
    assert tombstones.load(filesystem, "/data", GROUP) is None
    bury(filesystem)
    found = tombstones.load(filesystem, "/data", GROUP)
    assert found == Tombstone(HardState(Term(5), vote), EntryId(Term(4), Index(2)))
    assert tombstones.load(filesystem, "/data", GroupId(8)) is None


def test_nothing_in_a_tombstone_ever_goes_back() -> None:
    filesystem = FakeFilesystem()
    tombstones.keep(filesystem, "/data", GROUP, OLD)
    replica(filesystem, HardState(Term(5), None))
    bury(filesystem)
    assert tombstones.load(filesystem, "/data", GROUP) == OLD
    tombstones.keep(filesystem, "/data", GROUP, Tombstone(HardState(Term(3), None), BEFORE_LOG))
    replica(filesystem, HardState(Term(5), None), records=1)
    bury(filesystem)
    found = tombstones.load(filesystem, "/data", GROUP)
    assert found == Tombstone(HardState(Term(5), None), EntryId(Term(4), Index(0)))


def test_a_vote_that_a_later_life_has_given_in_the_same_term_stays_given() -> None:
    filesystem = FakeFilesystem()
    tombstones.keep(filesystem, "/data", GROUP, Tombstone(HardState(Term(9), None), OLD.last))
    replica(filesystem, HardState(Term(9), NodeId(2)))
    bury(filesystem)
    found = tombstones.load(filesystem, "/data", GROUP)
    assert found == Tombstone(HardState(Term(9), NodeId(2)), OLD.last)


@pytest.mark.parametrize("lost", [("a",), ("b",), ("a", "b")])
def test_a_vote_that_is_forgotten_was_spent_in_the_leader_s_term(
    lost: tuple[str, ...],
) -> None:
    filesystem = FakeFilesystem()
    replica(filesystem, HardState(Term(5), NodeId(2)), records=1)
    for name in lost:
        filesystem.overwrite(f"/data/replica/hard_state.{name}", b"rotten")
    end = EntryId(Term(6), Index(30))
    bury(filesystem, end, term=7)
    assert tombstones.load(filesystem, "/data", GROUP) == Tombstone(HardState(Term(7), NodeId(4)), end)


def test_what_an_earlier_life_has_promised_stays_where_a_later_one_is_forgotten() -> None:
    filesystem = FakeFilesystem()
    for term, hard_state in ((7, OLD.hard_state), (12, HardState(Term(12), NodeId(4)))):
        tombstones.keep(filesystem, "/data", GROUP, OLD)
        replica(filesystem, HardState(Term(5), None), records=1)
        for name in ("hard_state.a", "hard_state.b"):
            filesystem.remove(f"/data/replica/{name}")
        bury(filesystem, EntryId(Term(4), Index(0)), term=term)
        assert tombstones.load(filesystem, "/data", GROUP) == Tombstone(hard_state, OLD.last)
        filesystem.remove_tree("/data/replica")


def test_a_tombstone_outlives_the_loss_of_one_of_its_files_and_tells_that_of_both() -> None:
    filesystem = FakeFilesystem()
    tombstones.keep(filesystem, "/data", GROUP, OLD)
    path = f"/data/{tombstones.TOMBSTONES_FOLDER}/{GROUP}"
    filesystem.overwrite(path, None)
    assert tombstones.load(filesystem, "/data", GROUP) == OLD
    for name in (path, f"{path}.twin"):
        filesystem.flip_bit(name, 3)
    with pytest.raises(LogCorrupt, match="twin are damaged"):
        tombstones.load(filesystem, "/data", GROUP)


def test_a_damaged_log_is_buried_as_one_that_was_as_long_as_can_be() -> None:
    filesystem = FakeFilesystem()
    replica(filesystem, HardState(Term(5), NodeId(2)), records=3)
    name = next(name for name in filesystem.list_directory("/data/replica") if name.endswith(".log"))
    path = f"/data/replica/{name}"
    data = bytearray(filesystem.read_file(path))
    data[40] ^= 1
    filesystem.replace_file(path, bytes(data))
    bury(filesystem)
    found = tombstones.load(filesystem, "/data", GROUP)
    assert found == Tombstone(HardState(Term(5), NodeId(2)), EntryId(Term(5), tombstones.INDEX_MAX))


@pytest.mark.parametrize("is_damaged", [False, True])
def test_no_entry_is_kept_that_its_leader_did_not_have(is_damaged: bool) -> None:
    filesystem = FakeFilesystem()
    replica(filesystem, HardState(Term(5), None), records=3)
    if is_damaged:
        filesystem.flip_bit("/data/replica/00000000000000000000.log", 70)
    end = EntryId(Term(4), Index(1))
    bury(filesystem, end)
    assert tombstones.load(filesystem, "/data", GROUP) == Tombstone(HardState(Term(5), None), end)
