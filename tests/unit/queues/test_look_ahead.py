"""Jobs that nobody has had yet: how many a queue knows ahead, and which partitions are read first."""

from __future__ import annotations

import pytest

from queues import look_ahead
from queues.effects import Found, Look, Looked
from queues.look_ahead import AheadTotal, LookAhead
from tests.helpers.worked_off import WorkedOff


# requirement: N2
def test_a_queue_of_many_partitions_reads_a_bounded_number_of_jobs_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(look_ahead, "LOOK_COUNT", 4)
    monkeypatch.setattr(look_ahead, "FOUND_MAX", 8)
    mail = WorkedOff(30)
    for partition in range(30):
        mail.produce(*6 * [b""], partition=partition)
    taken = mail.take()
    assert len(mail.looks) == 2, "there are jobs enough"
    while some := mail.take(5):
        taken += some
    assert sorted((each.partition, each.offset) for each in taken) == [
        (partition, offset) for partition in range(30) for offset in range(6)
    ]


# requirement: N2
def test_what_is_found_beyond_the_bound_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_ahead, "LOOK_COUNT", 4)
    monkeypatch.setattr(look_ahead, "FOUND_MAX", 8)
    mail = WorkedOff(5)
    waiting = mail.receive(wait_ms=20_000)
    parked, mail.parked = mail.parked, []
    assert len(parked) == 5
    for partition in range(5):
        mail.produce(*4 * [b""], partition=partition)
    mail.parked = parked
    mail.produce()
    taken = [token.offset for token in mail.take(3)]
    assert len(mail.held(waiting)) == 1
    while some := mail.take(4):
        taken += [token.offset for token in some]
    assert len(taken) == 5 * 4 - 1


def look_of(partition: int, offset: int) -> Look:
    return Look("g", "mail", "t1", partition, offset, 0, with_keys=False)


# requirement: N2
def test_all_queues_of_a_coordinator_read_a_bounded_number_of_jobs_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(look_ahead, "LOOK_COUNT", 4)
    monkeypatch.setattr(look_ahead, "TOTAL_MAX", 8)
    total, queues = AheadTotal(), list[LookAhead]()
    for _ in range(20):
        queue = LookAhead(total)
        queues.append(queue)
        queue.add(0, 0)
        queue.add(1, 0)
        [(partition, offset, _)] = queue.wanted(0, 0, may_wait=False)[:1]
        found = Looked(0, 4, tuple(map(Found, range(4))))
        assert queue.looked(look_of(partition, offset), found, 0, lambda offset: True)
    assert total.count <= 8 + 20, "a queue without room keeps one job"
    for queue in queues:
        assert queue.give() is not None
    for queue in queues:
        queue.drop()
    assert total.count == 0
