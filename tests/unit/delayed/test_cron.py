"""The instants of cron expressions: days with a clock change, what is refused, and the newest of many."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from zoneinfo import ZoneInfo

import pytest

from delayed import cron
from raftlog.errors import InvalidRequest, Overloaded
from tests.helpers.few_descriptors import few_descriptors

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
)
MINUTE_MS = 60_000


def at(text: str, zone: str = "UTC") -> int:
    """Milliseconds of a local time."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def local(at_ms: int, zone: str) -> str:
    """A local time with its distance from UTC."""
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).strftime("%m-%d %H:%M%z")


def firings(expression: str, zone: str, after: str, count: int) -> list[str]:
    """The next instants."""
    found: list[str] = []
    now_ms = at(after, zone)
    for _ in range(count):
        following = cron.next_ms(expression, zone, now_ms)
        assert following is not None
        assert following > now_ms
        now_ms = following
        found.append(local(now_ms, zone))
    return found


# requirement: A5
def test_a_time_that_the_clock_skips_fires_right_after_the_change() -> None:
    expected = ["03-28 02:30+0100", "03-29 03:00+0200", "03-30 02:30+0200"]
    assert firings("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00", 3) == expected


# requirement: A5
def test_a_time_that_the_clock_repeats_fires_once() -> None:
    expected = ["10-24 02:30+0200", "10-25 02:30+0200", "10-26 02:30+0100"]
    assert firings("30 2 * * *", "Europe/Berlin", "2026-10-23T12:00", 3) == expected


# requirement: A5
def test_an_expression_for_each_hour_counts_the_hours_that_pass() -> None:
    forward = ["03-29 01:00+0100", "03-29 03:00+0200", "03-29 04:00+0200"]
    assert firings("0 * * * *", "Europe/Berlin", "2026-03-29T00:30", 3) == forward
    back = ["10-25 02:00+0200", "10-25 02:00+0100", "10-25 03:00+0100"]
    assert firings("0 * * * *", "Europe/Berlin", "2026-10-25T01:30", 3) == back


# requirement: A5
@pytest.mark.parametrize("hour", ["01:10", "02:10", "02:50"])
def test_no_instant_is_before_the_time_after_which_it_is_asked_for(hour: str) -> None:
    """In the repeated hour, too, where the library would go back."""
    second = datetime.fromisoformat(f"2026-10-25T{hour}").replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    after_ms = int(second.timestamp() * 1000)
    for expression in ("30 2 * * *", "0,20,40 2,3 * * *", "*/20 * * * *"):
        following = cron.next_ms(expression, "Europe/Berlin", after_ms)
        assert following is not None
        assert following > after_ms


# requirement: A5
@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "0 24 * * *",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 0 * *",
        "0 0 * 13 *",
        "MON#1/2 * * * *",
        "* * * * MON#1/2",
        "* * * * MON#9",
        "L/2 * * * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "@hourly",
        "* * * * ³L",
        "1," * 200 + "1 * * * *",
        "\x00 * * * *",
    ],
)
def test_what_is_no_expression_or_never_fires_is_refused(expression: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        cron.check(expression, "UTC", at("2026-01-01T00:00"))
    assert refused.value.details["field"] == "cron"


# requirement: A5
@pytest.mark.parametrize(
    "zone",
    ["", "Mars/Base", "../etc/passwd", "/etc/localtime", "localtime", "Europe", "a" * 999, "Ünich", "\0"],
)
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        cron.check("0 0 * * *", zone, 0)
    assert refused.value.details["field"] == "time_zone"


# requirement: A5
def test_a_zone_that_cannot_be_read_for_now_is_not_refused_for_good() -> None:
    expression, zone, now_ms = "0 0 * * *", "America/New_York", at("2026-01-01T00:00")
    ZoneInfo.clear_cache()
    cron.next_ms.cache_clear()
    with few_descriptors(0):
        with pytest.raises(Overloaded, match="no file descriptor"):
            cron.check(expression, zone, now_ms)
        with pytest.raises(Overloaded, match="no file descriptor"):
            cron.next_ms(expression, zone, now_ms)
        with pytest.raises(Overloaded, match="no file descriptor"):
            cron.newest(expression, zone, 0, now_ms, 1)
    cron.check(expression, zone, now_ms)


# requirement: A5
def test_an_expression_of_rare_days_is_accepted() -> None:
    assert cron.next_ms("0 0 29 2 *", "UTC", at("2026-01-01T00:00")) == at("2028-02-29T00:00")
    cron.check("0 0 * 2 MON#5", "UTC", at("2026-01-01T00:00"))


def drawn(rng: Random) -> str:
    """An expression of any kind."""
    minute = rng.choice(["*", "*/7", "0", "15,45", "30", "59", "5-20/5"])
    hour = rng.choice(["*", "*/3", "0", "2", "1,2,3", "23", "0-4"])
    day, month, week = rng.choice(["*", "*", "1", "L", "29"]), rng.choice(["*", "*", "2,3,10,11"]), "*"
    if rng.random() < 0.3:
        week = rng.choice(["SUN", "MON-FRI", "SUN#1", "SUNL".replace("SUN", "0")])
    return f"{minute} {hour} {day} {month} {week}"


# requirement: A5
@pytest.mark.parametrize("seed", range(25))
def test_instants_do_not_depend_on_where_one_begins(seed: int) -> None:
    """So a new leader fires what its predecessor would have fired, also around a change of the clock."""
    rng = Random(seed)
    expression, zone = drawn(rng), rng.choice(ZONES)
    change = rng.choice(
        ["2026-03-29T00:00", "2026-10-25T00:00", "2026-03-08T00:00", "2026-11-01T00:00", "2026-04-05T00:00"]
    )
    begin_ms = at(change) - 36 * 3_600_000
    end_ms = begin_ms + 4 * 86_400_000
    found: list[int] = []
    now_ms: int | None = begin_ms
    while now_ms is not None and now_ms <= end_ms:
        now_ms = cron.next_ms(expression, zone, now_ms)
        found += [now_ms] if now_ms is not None and now_ms <= end_ms else []
    assert found == sorted(set(found))
    for _ in range(20):
        middle_ms = rng.randrange(begin_ms, end_ms)
        expected = next((instant for instant in found if instant > middle_ms), None)
        following = cron.next_ms(expression, zone, middle_ms)
        assert following == expected or (expected is None and (following or end_ms + 1) > end_ms)
        count = rng.choice([1, 3, 100])
        passed = [instant for instant in found if instant <= middle_ms]
        assert cron.newest(expression, zone, begin_ms, middle_ms, count) == passed[-count:]


# requirement: A5
def test_the_newest_of_very_many_instants_are_found_soon() -> None:
    until_ms = int(datetime(2090, 1, 1, tzinfo=UTC).timestamp() * 1000)
    found = cron.newest("* * * * *", "Europe/Berlin", 0, until_ms, 3)
    assert found == [until_ms - 2 * MINUTE_MS, until_ms - MINUTE_MS, until_ms]
    assert cron.newest("0 0 29 2 *", "UTC", 0, until_ms, 2) == [
        at("2084-02-29T00:00"),
        at("2088-02-29T00:00"),
    ]
