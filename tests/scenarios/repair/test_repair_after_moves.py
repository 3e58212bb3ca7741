"""Rule 3 of repair asks also brokers whose replica has moved away."""

from __future__ import annotations

import pytest

from raftlog.core.membership import NOBODY
from raftlog.core.ready import HardState
from raftlog.repair.target import CannotRepair
from raftlog.storage.slots import SLOT_BYTES
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId, Term
from tests.helpers.log_files import DIRECTORY, write_raw
from tests.helpers.repair_cluster import TERMS, Cluster, log_of


def with_a_lost_slot() -> FakeFilesystem:
    filesystem = log_of(*TERMS)
    write_raw(filesystem, f"{DIRECTORY}/hard_state.a", 0, bytes(SLOT_BYTES))
    return filesystem


# requirement: M3
def test_a_broker_whose_replica_was_deleted_has_nothing_to_say() -> None:
    others = {"broker_2": log_of(*TERMS, hard_term=4), "broker_3": FakeFilesystem()}
    log = Cluster(with_a_lost_slot(), **others).repair()
    assert log.restored(NOBODY).hard_state == HardState(Term(4), NodeId(1))


def test_a_broker_that_does_not_know_yet_whether_it_has_a_replica_is_waited_for() -> None:
    cluster = Cluster(with_a_lost_slot(), broker_2=log_of(*TERMS), broker_3=None)
    with pytest.raises(CannotRepair, match=r"brokers \[3\] must say which terms they know"):
        cluster.repair()
