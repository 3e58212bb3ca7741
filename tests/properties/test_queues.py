"""Queues under random workers, coordinators that die between any two steps, and clocks that differ."""

from __future__ import annotations

from random import Random

import pytest

from groups.records import KINDS, Key, Value
from groups.state import GroupsState
from queues.all_queues import QueueLimits
from queues.effects import Found
from queues.requests import Settle
from raftlog.records.tags import TagSelection
from tests.helpers.queue_crowd import PARTITIONS, UNIT_MS, Crowd, one_step
from tests.helpers.worked_off import WorkedOff

STEPS = 250


# requirement: A7 A10
@pytest.mark.parametrize("seed", range(20))
def test_each_job_is_done_or_dead_and_no_two_workers_have_it(seed: int) -> None:
    rng = Random(seed)
    mail = WorkedOff(PARTITIONS, limits=QueueLimits(queue_max=rng.choice([3, 10, 1_000])))
    mail.stores_letters = rng.random() < 0.5
    mail.selection = TagSelection(all=("paid",), none=("new",)) if seed >= 40 else None
    crowd = Crowd(mail, rng, is_ordered=seed % 2 == 1, clocks_differ=seed % 4 > 1)
    for _ in range(STEPS):
        one_step(crowd)
    mail.holds_back = False
    mail.stores_letters = True
    mail.carry_out()
    mail.store_letters()
    for _ in range(len(crowd.all_jobs()) + 10):
        mail.after(30 * UNIT_MS)
        crowd.receive(5)
        crowd.listen()
        for place in sorted(crowd.held.keys() - crowd.done):
            crowd.finished.add(place)
            settle = Settle(group="g", topic="mail", tokens=(crowd.held[place][0],), how="ack")
            crowd.asked[mail.send(settle)] = b"", settle
        crowd.listen()
    dead = {(each.partition, each.offset) for each in mail.buried}
    assert crowd.all_jobs() <= crowd.done | dead | crowd.finished
    assert mail.committed.jobs == {}
    assert {at: mail.done_below(at) for at in range(PARTITIONS)} == mail.ends
    assert crowd.delivered > 20 or mail.selection


# requirement: A7
@pytest.mark.parametrize("seed", range(20))
def test_a_compacted_log_adds_up_to_the_same_jobs(seed: int) -> None:
    """The newest row of each key is the whole state, whatever compaction leaves out of the others."""
    rng = Random(seed)
    mail = WorkedOff(PARTITIONS)
    crowd = Crowd(mail, rng, is_ordered=seed % 2 == 1, clocks_differ=False)
    for _ in range(STEPS):
        one_step(crowd)
    mail.carry_out()
    rows = [row for written in mail.written for row in written]
    newest = {KINDS.record_of(key, None).key: at for at, (key, _) in enumerate(rows)}
    kept: list[tuple[Key, Value | None]] = [
        row
        for at, row in enumerate(rows)
        if at == newest[KINDS.record_of(row[0], None).key] or rng.random() < 0.3
    ]
    state = GroupsState()
    for key, value in kept:
        state.put(key, value)
    assert state.snapshot() == mail.committed.snapshot()


# requirement: A7
def test_the_memory_of_a_queue_does_not_grow_with_the_jobs_that_are_done() -> None:
    """One job stays open for long, and leases are much longer than the work takes."""
    mail = WorkedOff()
    mail.produce(b"")
    mail.take(lease_ms=10**9)
    jobs = mail.coordination.queues._queues["g", "mail"]._jobs
    for _ in range(400):
        mail.records[0] = [Found(mail.ends[0] + n) for n in range(20)]
        mail.ends[0] += 20
        mail.starts[0] = 0
        for _ in range(5):
            tokens = mail.take(4, lease_ms=10**9)
            mail.settle("extend", tokens, 10**9)
            mail.settle("ack", tokens)
        mail.written.clear()
        mail.looks.clear()
    assert mail.view().parts[0].next_offset == 8_001
    assert len(jobs) == 1
    assert len(jobs._until) < 4_000
    assert sum(map(len, jobs._offsets.values())) < 4_000
    assert len(jobs._ready) < 10
