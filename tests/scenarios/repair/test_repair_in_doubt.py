"""Repairs of a replica one of whose slots is lost: the other one may be a sync behind."""

from __future__ import annotations

from raftlog.core.membership import NOBODY
from raftlog.core.ready import HardState
from raftlog.repair.verify import examine
from raftlog.storage.slots import SLOT_BYTES
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import EntryId, Index, NodeId, Term
from tests.helpers.log_files import BATCH, DIRECTORY, open_log, segment, sync, write_raw
from tests.helpers.repair_cluster import Cluster, leads, log_of, terms_in
from tests.helpers.storage_batches import storage_batch

TERMS = [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3]


def log_whose_newest_slot_is_lost(*terms: int, durable_index: int) -> FakeFilesystem:
    """A log with a batch of each of these terms; the slot that is left promises no more than it says."""
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    for at, term in enumerate(terms):
        log.save_hard_state(HardState(Term(term), NodeId(1)))
        log.append([storage_batch(at, epoch=term)])
        if at == durable_index:
            sync(log)
    sync(log)
    log.close()
    filesystem.restart()
    write_raw(filesystem, f"{DIRECTORY}/hard_state.b", 0, bytes(SLOT_BYTES))
    return filesystem


# requirement: M3
def test_what_is_lacking_beyond_the_anchor_comes_from_a_leader_only() -> None:
    """Broker 2 holds the anchor, entry 9, and behind it entries that were never committed."""
    one = log_whose_newest_slot_is_lost(*TERMS, durable_index=9)
    for entry in (9, 10):
        one.flip_bit(segment(8), (entry - 8) * BATCH + 62)
    seen = examine(one, DIRECTORY)
    assert (seen.anchor, [(hole.first, hole.last) for hole in seen.holes]) == (
        EntryId(Term(2), Index(9)),
        [(9, 10)],
    )
    committed = [*TERMS[:10], 4, 4]
    others = {"broker_2": log_of(*TERMS[:10], 2, 2), "broker_3": leads(log_of(*committed), 5)}
    assert terms_in(Cluster(one, **others).repair()) == committed


# requirement: M3
def test_who_takes_the_log_of_a_leader_of_its_own_term_has_no_vote_left_in_it() -> None:
    """The slot that is left says that nobody was voted for; the one that is lost may have said otherwise."""
    one = log_of(*TERMS, hard_term=4)
    write_raw(one, f"{DIRECTORY}/hard_state.b", 0, bytes(SLOT_BYTES))
    one.open(segment(8)).truncate(BATCH + 5)
    seen = examine(one, DIRECTORY)
    assert (seen.doubt is None, seen.state.hard_state) == (False, HardState(Term(4), None))
    log = Cluster(one, broker_2=leads(log_of(*TERMS), 4), broker_3=log_of(*TERMS)).repair()
    assert terms_in(log) == TERMS
    assert log.restored(NOBODY).hard_state == HardState(Term(4), NodeId(1))
