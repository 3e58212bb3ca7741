"""Series of the report's timeline, with exact numbers."""

from __future__ import annotations

import math

import pytest

from chaos.harness.record import Leadership
from chaos.harness.report import numbers, series
from chaos.harness.report.series import Led, Span
from chaos.history import Outcome, Send

ACKNOWLEDGED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.UNKNOWN


def send(begun_s: float, ended_s: float, outcome: Outcome = ACKNOWLEDGED, partition: int = 0) -> Send:
    return Send(
        process=1,
        partition=partition,
        value=f"{begun_s}",
        invoked_s=begun_s,
        completed_s=ended_s,
        outcome=outcome,
    )


def leads(at_s: float, leader: int | None, term: int = 1, partition: int = 0) -> Leadership:
    return Leadership(at_s=at_s, topic="t", partition=partition, leader=leader, term=term)


def spans(*sends: Send, seconds: float = 10) -> list[tuple[float, float]]:
    (found,) = series.unavailability(sends, 0.0, seconds).values()
    return [(span.begun_s, span.ended_s) for span in found]


def test_acknowledgements_count_in_the_second_they_arrive() -> None:
    sends = [send(100.5, 101.5), send(101.25, 101.75), send(101, 103.5), send(100, 101, UNKNOWN)]
    found = series.load(sends, start_s=100.0, seconds=4.0)
    assert found.bucket_s == 1
    assert found.per_second == (0, 2, 0, 1)
    assert found.p50_s == (None, 0.5, None, 2.5)
    assert found.p99_s == (None, 1.0, None, 2.5)


def test_what_is_outside_of_the_run_is_left_out() -> None:
    found = series.load([send(0, 9.5), send(10, 14.5), send(10, math.inf, UNKNOWN)], 10.0, 4.0)
    assert found.per_second == (0, 0, 0, 0)


def test_the_last_bucket_may_be_shorter() -> None:
    assert series.load([send(1, 1.25)], 0.0, 1.5).per_second == (0, 2)


def test_percentiles_are_nearest_ranks() -> None:
    sends = [send(5 - n / 128, 5) for n in range(1, 129)]
    found = series.load(sends, 0.0, 6.0)
    assert (found.p50_s[5], found.p99_s[5]) == (64 / 128, 127 / 128)


def test_a_long_run_has_longer_buckets() -> None:
    found = series.load([send(0.1, 7.0 + n / 10) for n in range(20)], 0.0, 3600.0)
    assert (found.bucket_s, len(found.per_second)) == (5, 720)
    assert found.per_second[1] == 4


def test_a_silence_lasts_from_one_acknowledgement_to_the_next() -> None:
    assert spans(send(1, 1.25), send(1.125, 3.0), send(3, 3.25)) == [(1.25, 3.0)]


def test_a_short_silence_is_none() -> None:
    assert spans(send(1, 1.25), send(1.25, 1.75), send(1.75, 2)) == []


def test_a_partition_without_sends_under_way_is_not_unavailable() -> None:
    assert spans(send(1, 1.25), send(9, 9.25)) == []


def test_a_silence_begins_with_a_send_not_with_the_idle_time_before_it() -> None:
    assert spans(send(1, 1.25), send(5, 6)) == [(5, 6)]


def test_clients_that_pause_between_unknown_sends_do_not_end_a_silence() -> None:
    assert spans(send(1, 2, UNKNOWN), send(2.25, 3, UNKNOWN), send(3.25, 4)) == [(1, 4)]
    assert spans(send(1, 2, UNKNOWN), send(4, 5, UNKNOWN)) == [(1, 2), (4, 5)]


def test_an_acknowledgement_ends_a_silence_though_other_sends_wait() -> None:
    assert spans(send(1, 4), send(1.5, 2), send(2, 2.25)) == [(1, 2), (2.25, 4)]


def test_a_send_without_end_is_under_way_until_the_run_ends() -> None:
    assert spans(send(8, math.inf, UNKNOWN)) == [(8, 10)]


def test_each_partition_has_its_own_silences() -> None:
    sends = [send(101, 103, partition=1), send(101, 101.25, partition=0), send(102, 104, partition=1)]
    found = series.unavailability(sends, 100.0, 10.0)
    assert found == {0: [], 1: [Span(1, 3), Span(3, 4)]}


def test_many_spans_become_one_where_they_are_close() -> None:
    close = [Span(n, n + 0.75) for n in range(10)]
    assert series.thinned(close, gap_s=0.5, count_max=10) == close
    assert series.thinned([*close, Span(20, 21)], gap_s=0.5, count_max=10) == [Span(0, 9.75), Span(20, 21)]


def test_a_leader_of_two_terms_has_one_span() -> None:
    rows = [leads(1, 2), leads(4, None), leads(5, 2, term=2), leads(7, 2, term=3), leads(0, 1, partition=3)]
    assert series.leaders(rows, 10.0) == {
        ("t", 0): [Led(1, 4, 2), Led(4, 5, None), Led(5, 10, 2)],
        ("t", 3): [Led(0, 10, 1)],
    }


def test_many_leaders_become_those_who_led_longest() -> None:
    found = [Led(0, 1, 1), Led(1, 4, 2), Led(4, 5, 1), Led(5, 8, 1), Led(8, 10, 3)]
    assert series.coarsened(found, 10.0, slots=5) == found
    assert series.coarsened(found, 10.0, slots=2) == [Led(0, 5, 2), Led(5, 10, 1)]
    assert series.coarsened(found[3:4] * 3, 10.0, slots=2) == [Led(5, 10, 1)]


def test_overlapping_faults_get_rows_of_their_own() -> None:
    assert series.rows([(0, 5), (1, 2), (2, 3), (4, 6), (5, 7), (5.5, 8)]) == [0, 1, 1, 1, 0, 2]


@pytest.mark.parametrize(
    ("number", "expected"), [(0, 1), (1, 1), (1.2, 1.5), (92, 100), (210, 300), (5000, 5000), (0.7, 0.8)]
)
def test_axes_end_at_round_numbers(number: float, expected: float) -> None:
    assert series.round_up(number) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (0.0123, "12.3 ms"),
        (0.85, "850 ms"),
        (0.9996, "1.00 s"),
        (9.994, "9.99 s"),
        (12.34, "12.3 s"),
        (59.97, "1 min"),
        (125, "2 min 5 s"),
        (3720, "1 h 2 min"),
        (math.inf, "no end"),
    ],
)
def test_durations_have_units(seconds: float, expected: str) -> None:
    assert numbers.duration(seconds) == expected


def test_shares_are_rounded_down() -> None:
    assert [numbers.percent(share) for share in (1, 0.99999, 0.9987, 0)] == [
        "100 %",
        "99.99 %",
        "99.87 %",
        "0.00 %",
    ]


def test_moments_and_axes() -> None:
    assert [numbers.exact_moment(s) for s in (5.96, 59.96)] == ["0:06.0", "1:00.0"]
    assert [numbers.axis(n) for n in (0, 2.5, 2500, 25000, 2.5e6)] == ["0", "2.5", "2,500", "25 k", "2.5 M"]
    assert [numbers.several(n, "anomaly") for n in (1, 2)] == ["1 anomaly", "2 anomalies"]
