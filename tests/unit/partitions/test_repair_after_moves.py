"""Rule 3 of repair asks also those whose replica has moved away: they have left their terms behind."""

from __future__ import annotations

import pytest

from raftlog.core.ready import HardState
from raftlog.repair.target import CannotRepair
from raftlog.storage import tombstones
from raftlog.storage.slots import SLOT_BYTES
from raftlog.storage.tombstones import Tombstone
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import BEFORE_LOG, NodeId, Term
from tests.unit.partitions.test_repairer import GROUP, NOBODY, TERMS, Cluster, log_of
from tests.unit.storage.test_recovery import DIRECTORY, write_raw


def with_a_lost_slot() -> FakeFilesystem:
    filesystem = log_of(*TERMS)
    write_raw(filesystem, f"{DIRECTORY}/hard_state.a", 0, bytes(SLOT_BYTES))
    return filesystem


def departed(term: int) -> FakeFilesystem:
    """The disk of a broker whose replica has gone."""
    filesystem = FakeFilesystem()
    tombstones.keep(filesystem, "/data", GROUP, Tombstone(HardState(Term(term), NodeId(3)), BEFORE_LOG))
    return filesystem


# requirement: M3
@pytest.mark.parametrize(("left_in", "goes_on_in"), [(2, 4), (12, 12)])
def test_a_replica_that_has_gone_says_the_terms_it_knew(left_in: int, goes_on_in: int) -> None:
    others = {"broker_2": log_of(*TERMS, hard_term=4), "broker_3": departed(left_in)}
    log = Cluster(with_a_lost_slot(), **others).repair()
    assert log.restored(NOBODY).hard_state == HardState(Term(goes_on_in), NodeId(1))


def test_who_has_neither_replica_nor_tombstone_may_have_forgotten_and_is_waited_for() -> None:
    others = {"broker_2": log_of(*TERMS), "broker_3": FakeFilesystem()}
    with pytest.raises(CannotRepair, match=r"brokers \[3\] must say which terms they know"):
        Cluster(with_a_lost_slot(), **others).repair()


def test_a_tombstone_that_is_lost_says_nothing() -> None:
    gone = departed(12)
    for ending in ("", ".twin"):
        gone.flip_bit(f"/data/{tombstones.TOMBSTONES_FOLDER}/{GROUP}{ending}", 3)
    with pytest.raises(CannotRepair, match=r"brokers \[3\] must say"):
        Cluster(with_a_lost_slot(), broker_2=log_of(*TERMS), broker_3=gone).repair()
