"""Leases and delays of jobs, and the wall clocks of the coordinators that follow one another."""

from __future__ import annotations

import pytest

from tests.helpers.worked_off import LEASE_MS, WorkedOff

# requirement: A7

HOUR_MS = 3_600_000


@pytest.mark.parametrize(("skew_ms", "held_ms"), [(-HOUR_MS, LEASE_MS), (HOUR_MS, 0), (0, 20_000)])
def test_a_clock_of_the_next_coordinator_never_makes_a_lease_longer(skew_ms: int, held_ms: int) -> None:
    mail = WorkedOff()
    mail.produce(b"")
    mail.take()
    mail.after(10_000)
    mail.skew_ms = skew_ms
    mail.fail_over()
    if held_ms:
        mail.after(held_ms - 1)
        assert mail.take() == []
        mail.after(1)
    else:
        mail.after(0)
    assert [job.offset for job in mail.take()] == [0]


@pytest.mark.parametrize("how", ["leased", "delayed"])
@pytest.mark.parametrize("unknown_to", ["the first", "the next"])
def test_a_lease_is_never_shortened_by_a_clock_that_brokers_do_not_agree_on(
    unknown_to: str, how: str
) -> None:
    mail = WorkedOff()
    mail.produce(b"")
    if unknown_to == "the first":
        mail.is_time_known, mail.skew_ms = False, -HOUR_MS
        mail.fail_over()
    job = mail.take()
    if how == "delayed":
        mail.settle("nack", job, LEASE_MS)
    mail.after(10_000)
    mail.is_time_known = unknown_to == "the first"
    mail.skew_ms = 0 if mail.is_time_known else HOUR_MS
    mail.fail_over()
    mail.after(LEASE_MS - 1)
    assert mail.take() == []
    mail.after(1)
    assert [job.offset for job in mail.take()] == [0]


def test_a_lease_is_dated_again_once_brokers_agree_on_a_time(mail: WorkedOff) -> None:
    mail.produce(b"")
    mail.is_time_known = False
    mail.fail_over()
    mail.settle("nack", mail.take())
    mail.is_time_known = True
    mail.fail_over()
    assert [job.offset for job in mail.take()] == [0]
    mail.after(10_000)
    mail.fail_over()
    mail.after(LEASE_MS - 10_000)
    assert [job.offset for job in mail.take()] == [0]


def test_a_clock_that_is_set_changes_no_lease(mail: WorkedOff) -> None:
    mail.produce(b"")
    mail.take()
    for skew_ms in (HOUR_MS, -HOUR_MS):
        mail.skew_ms = skew_ms
        mail.after(1_000)
        assert mail.take() == []
    mail.after(LEASE_MS - 2_000)
    assert [job.offset for job in mail.take()] == [0]
