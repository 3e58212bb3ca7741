"""Which settings a topic takes, and in which form they are kept."""

from __future__ import annotations

import pytest

from partitions.metadata.topic_config import DEFAULTS, check, complete
from raftlog.errors import InvalidRequest


def checked(**changes: object) -> dict[str, int | str | None]:
    return check({key.replace("_", "."): value for key, value in changes.items()}, replication_factor=3)


# requirement: RT1
def test_records_are_kept_for_two_weeks_unless_somebody_says_otherwise() -> None:
    assert DEFAULTS["retention.ms"] == 1_209_600_000
    assert DEFAULTS["retention.bytes"] == -1
    assert complete({}, replication_factor=3)["retention.ms"] == 1_209_600_000
    assert complete({"retention.ms": 60_000}, replication_factor=3)["retention.ms"] == 60_000


def test_every_default_is_a_value_that_may_be_set() -> None:
    assert check(DEFAULTS, replication_factor=3) == dict.fromkeys(DEFAULTS)


def test_what_equals_the_default_is_not_kept() -> None:
    assert checked(retention_ms=1_209_600_000) == {"retention.ms": None}
    assert checked(retention_ms=None) == {"retention.ms": None}


@pytest.mark.parametrize("value", [60_000, "60000", " 60000 "])
def test_numbers_may_come_as_text(value: object) -> None:
    assert checked(retention_ms=value) == {"retention.ms": 60_000}


@pytest.mark.parametrize("value", [False, "false"])
def test_truths_may_come_as_text_or_not(value: object) -> None:
    assert checked(validate_records=value) == {"validate.records": "false"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", 0),
        ("retention.ms", -2),
        ("retention.ms", "two weeks"),
        ("retention.ms", "\u0661"),
        ("retention.ms", "9" * 30),
        ("retention.ms", 1.5),
        ("retention.ms", True),
        ("retention.ms", []),
        ("retention.ms", "--1"),
        ("retention.ms", ""),
        ("retention.bytes", -2),
        ("segment.bytes", 0),
        ("segment.bytes", 1 << 31),
        ("segment.ms", 0),
        ("max.message.bytes", 1),
        ("max.message.bytes", 1 << 30),
        ("message.timestamp.type", "logappendtime"),
        ("min.insync.replicas", 0),
        ("min.insync.replicas", 4),
        ("min.insync.replicas", "all"),
        ("cleanup.policy", "compacted"),
        ("cleanup.policy", ""),
        ("cleanup.policy", 1),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "-0.5"),
        ("min.cleanable.dirty.ratio", "1e-3"),
        ("min.cleanable.dirty.ratio", "."),
        ("min.cleanable.dirty.ratio", True),
        ("cleanup.policy", "shred"),
        ("replica.lag.max.ms", 0),
        ("replica.lag.max.records", 0),
        ("validate.records", "yes"),
        ("retention.minutes", 5),
    ],
)
def test_a_bad_value_is_refused_naming_key_value_and_what_is_allowed(key: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check({key: value}, replication_factor=3)
    message = str(caught.value)
    assert key in message
    assert "allowed" in message or "the settings are" in message
    assert caught.value.details["field"] == f"config.{key}"


def test_a_long_value_makes_no_long_message() -> None:
    with pytest.raises(InvalidRequest) as caught:
        checked(retention_ms="x" * 1_000_000)
    assert len(str(caught.value)) < 300
    with pytest.raises(InvalidRequest) as caught:
        check({"x" * 1_000_000: 1}, replication_factor=3)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("given", "kept"),
    [("compact", "compact"), ("delete,compact", "compact,delete"), ("compact, delete", "compact,delete")],
)
def test_a_topic_may_be_compacted(given: str, kept: str) -> None:
    assert check({"cleanup.policy": given}, replication_factor=3) == {"cleanup.policy": kept}


@pytest.mark.parametrize("ratio", ["0", "0.01", "1", "1.0"])
def test_the_dirty_ratio_is_a_number_as_text(ratio: str) -> None:
    assert checked(min_cleanable_dirty_ratio=ratio) == {"min.cleanable.dirty.ratio": ratio}


@pytest.mark.parametrize(("number", "kept"), [(0.25, "0.25"), (0.0, "0"), (1.0, "1"), (0.5, None)])
def test_the_dirty_ratio_may_be_a_number(number: float, kept: str | None) -> None:
    assert checked(min_cleanable_dirty_ratio=number) == {"min.cleanable.dirty.ratio": kept}


@pytest.mark.parametrize(
    ("key", "text", "number"),
    [
        ("retention.ms", "30d", 30 * 86_400_000),
        ("retention.bytes", "10GiB", 10 << 30),
        ("segment.bytes", "64mb", 64_000_000),
        ("segment.ms", " 12h ", 12 * 3_600_000),
        ("max.message.bytes", "2MiB", 2 << 20),
        ("replica.lag.max.ms", "5s", 5_000),
    ],
)
def test_durations_and_sizes_may_have_a_unit(key: str, text: str, number: int) -> None:
    assert check({key: text}, replication_factor=3) == {key: number}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("retention.ms", "10GiB"),
        ("retention.bytes", "14d"),
        ("min.insync.replicas", "1s"),
        ("segment.ms", "0s"),
    ],
)
def test_a_unit_must_fit_its_setting(key: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match="allowed: "):
        check({key: text}, replication_factor=3)


@pytest.mark.parametrize(("factor", "majority"), [(1, 1), (3, 2), (5, 3)])
# requirement: RP9
def test_a_majority_is_wanted_by_default(factor: int, majority: int) -> None:
    assert complete({}, factor)["min.insync.replicas"] == majority
    assert complete({"min.insync.replicas": 1}, factor)["min.insync.replicas"] == 1


def test_a_complete_configuration_has_every_key() -> None:
    assert complete({"retention.ms": 5}, 3).keys() == DEFAULTS.keys()
