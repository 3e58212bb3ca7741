"""Cluster time: what a wall clock may do, alone and among others."""

from __future__ import annotations

import pytest

from raftlog.node.cluster_time import ClockBounds, ClusterTime
from raftlog.types import NodeId

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
BOUNDS = ClockBounds(jump_ms_max=600_000, pause_ms=3_600_000)


class Machine:
    """A broker's clocks; ``shift_ms`` is how far its wall clock is off."""

    is_known = True

    def __init__(self) -> None:
        self.seconds = 0.0
        self.shift_ms = 0
        self.restart()

    def restart(self) -> None:
        self.time = ClusterTime(self, BOUNDS)

    def monotonic(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return START_MS + round(self.seconds * 1000) + self.shift_ms

    @property
    def error_ms(self) -> int:
        """How far the stamps of this broker are off."""
        return self.time.wall_ms() - START_MS - round(self.seconds * 1000)


class Cluster:
    """Brokers that hear one another, unless they are down."""

    def __init__(self, count: int = 3) -> None:
        self.machines = [Machine() for _ in range(count)]
        self.down: set[int] = set()
        self.delay_s = 0.0  # of a reading on its way

    def pass_time(self, seconds: float, rounds: int = 4) -> None:
        for _ in range(rounds):
            self._pass(seconds / rounds - self.delay_s)
            running = [number for number in range(len(self.machines)) if number not in self.down]
            for number in running:
                self.machines[number].time.look(len(self.machines))
            readings = [machine.time.reading() for machine in self.machines]
            self._pass(self.delay_s)
            for sender in running:
                for receiver in running:
                    if sender != receiver:
                        self.machines[receiver].time.heard(NodeId(sender + 1), readings[sender])

    def _pass(self, seconds: float) -> None:
        for machine in self.machines:
            machine.seconds += seconds

    @property
    def trusted(self) -> list[bool]:
        return [machine.time.is_trusted for machine in self.machines]

    @property
    def errors_ms(self) -> list[int]:
        return [machine.error_ms for machine in self.machines]


def settled(count: int = 3) -> Cluster:
    cluster = Cluster(count)
    cluster.pass_time(1.0)
    assert cluster.trusted == [True] * count
    return cluster


# requirement: RT2
def test_a_clock_that_jumps_is_not_trusted_from_that_moment_on() -> None:
    for days in (14, -14):
        cluster = settled()
        first = cluster.machines[0]
        first.shift_ms = days * DAY_MS
        assert first.time.trusted_ms() is None  # before any look
        assert first.error_ms == 0
        cluster.pass_time(30.0)
        assert cluster.trusted == [False, True, True]
        assert cluster.errors_ms == [0, 0, 0]
        first.shift_ms = 0
        cluster.pass_time(1.0)
        assert cluster.trusted == [True, True, True]


# requirement: RT2
@pytest.mark.parametrize(("wrong", "right"), [(1, 2), (2, 2)])
def test_half_of_the_clocks_or_fewer_are_never_believed(wrong: int, right: int) -> None:
    cluster = settled(wrong + right)
    for machine in cluster.machines[:wrong]:
        machine.shift_ms = 14 * DAY_MS
    cluster.pass_time(3 * 3600.0, rounds=1000)
    assert cluster.trusted == [False] * wrong + [True] * right
    assert cluster.errors_ms == [0] * (wrong + right)


# requirement: RT2
def test_a_broker_that_starts_with_a_wrong_clock_goes_by_the_others() -> None:
    for days in (14, -14):
        cluster = settled()
        first = cluster.machines[0]
        first.shift_ms = days * DAY_MS
        first.restart()
        assert first.time.trusted_ms() is None
        cluster.pass_time(1.0)
        assert cluster.trusted == [False, True, True]
        assert cluster.errors_ms == [0, 0, 0]


# requirement: RT2
def test_a_broker_that_starts_with_a_wrong_clock_is_as_late_as_the_readings_are_now() -> None:
    """Its stamps would be too early, and its records be deleted too early, once its clock is right again."""
    cluster = settled()
    first = cluster.machines[0]
    first.shift_ms = -DAY_MS
    first.restart()
    cluster.delay_s = 2.0
    cluster.pass_time(12.0)
    assert cluster.errors_ms == [-2_000, 0, 0]
    cluster.delay_s = 0.1
    cluster.pass_time(12.0)
    assert cluster.errors_ms == [-100, 0, 0]
    cluster.delay_s = 2.0
    cluster.pass_time(12.0)
    assert cluster.errors_ms == [-100, 0, 0]


# requirement: RT2
def test_with_one_broker_down_the_one_that_knows_the_time_is_believed() -> None:
    cluster = settled()
    cluster.down = {2}
    cluster.pass_time(100.0)
    first = cluster.machines[0]
    first.shift_ms = -14 * DAY_MS
    first.restart()
    cluster.pass_time(1.0)
    assert cluster.trusted[:2] == [False, True]
    assert cluster.errors_ms[:2] == [0, 0]


# requirement: RT2
def test_a_jump_of_all_clocks_pauses_all_and_outlives_restarts_one_by_one() -> None:
    cluster = settled()
    for machine in cluster.machines:
        machine.shift_ms = 14 * DAY_MS
    for machine in cluster.machines:
        cluster.pass_time(1.0)
        machine.restart()
    cluster.pass_time(1.0)
    assert cluster.trusted == [False, False, False]
    assert cluster.errors_ms == [0, 0, 0]


def test_time_goes_on_at_its_pace_while_all_clocks_are_off_and_readings_come_late() -> None:
    cluster = Cluster()
    cluster.pass_time(60)
    cluster.delay_s = 0.2
    for machine in cluster.machines:
        machine.shift_ms = -2 * DAY_MS
    cluster.pass_time(600, rounds=600)
    assert not any(cluster.trusted)
    assert [machine.error_ms for machine in cluster.machines] == [0, 0, 0]


def test_a_jump_that_a_majority_makes_is_believed_after_the_pause() -> None:
    cluster = settled()
    for machine in cluster.machines:
        machine.shift_ms = 8 * 3_600_000  # as after a suspension
    cluster.pass_time(3500.0, rounds=500)
    assert cluster.trusted == [False, False, False]
    cluster.pass_time(200.0, rounds=50)
    assert cluster.trusted == [True, True, True]
    assert cluster.errors_ms == [8 * 3_600_000] * 3


def test_a_broker_whose_own_monotonic_clock_stood_still_follows_the_others_at_once() -> None:
    cluster = settled()
    first = cluster.machines[0]
    first.seconds -= 8 * 3600.0  # its machine was suspended
    first.shift_ms = 8 * 3_600_000
    first.time = ClusterTime(first, BOUNDS)
    first.shift_ms = 0
    first.time.look(3)
    first.shift_ms = 8 * 3_600_000
    cluster.pass_time(1.0)
    assert cluster.trusted == [True, True, True]


def test_a_single_broker_trusts_its_clock_but_not_its_jumps() -> None:
    cluster = settled(1)
    cluster.pass_time(2 * 3600.0, rounds=1000)  # longer than the pause
    machine = cluster.machines[0]
    machine.shift_ms = DAY_MS
    cluster.pass_time(3000.0, rounds=500)
    assert cluster.trusted == [False]
    assert cluster.errors_ms == [0]
    cluster.pass_time(700.0, rounds=100)
    assert cluster.trusted == [True]


def test_a_cluster_that_starts_with_no_majority_for_a_time_trusts_none() -> None:
    cluster = Cluster()
    for number, machine in enumerate(cluster.machines):
        machine.shift_ms = number * DAY_MS
    cluster.pass_time(7200.0, rounds=1000)
    assert cluster.trusted == [False, False, False]
    cluster.machines[2].shift_ms = 0
    cluster.pass_time(1.0)
    assert cluster.trusted == [True, False, True]
    assert cluster.errors_ms == [0, 0, 0]


def test_a_cluster_that_starts_with_two_halves_that_disagree_trusts_neither() -> None:
    cluster = Cluster(4)
    for machine in cluster.machines[:2]:
        machine.shift_ms = DAY_MS
    cluster.pass_time(7200.0, rounds=1000)
    assert cluster.trusted == [False, False, False, False]


def test_deletion_goes_by_the_earlier_one_of_wall_clock_and_cluster_time() -> None:
    cluster = settled()
    first = cluster.machines[0]
    first.shift_ms = 300_000
    cluster.pass_time(1.0)
    assert first.time.trusted_ms() == first.wall_ms() - 300_000
    first.shift_ms = -300_000
    cluster.pass_time(1.0)
    assert first.time.trusted_ms() == first.wall_ms()
