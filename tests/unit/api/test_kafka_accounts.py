"""What accounts of an import say: which offsets of Kafka are which here."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kafka_import.accounts import Account, Copied, runs_of
from raftlog.errors import Conflict

GAPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60)


# requirement: A13
@given(gaps=GAPS, cut=st.integers(0, 60))
def test_a_position_is_that_of_the_first_record_not_consumed(gaps: list[tuple[int, int]], cut: int) -> None:
    """Both logs have gaps, of markers and of what was removed; two transactions have the records."""
    pairs, source, target = [], 5, 0
    for of_source, of_target in gaps:
        source, target = source + 1 + of_source, target + 1 + of_target
        pairs.append((source, target))
    accounts = [
        Account("c", "t", "i", {0: 0}, {0: runs_of(some)}) for some in (pairs[:cut], pairs[cut:]) if some
    ]
    copied = Copied(msgspec.json.decode(msgspec.json.encode(accounts), type=list[Account]))
    for committed in range(source + 3):
        left = [here for there, here in pairs if there >= committed]
        assert copied.translated(0, committed) == (left[0] if left else target + 1)
    assert copied.count(0) == len(pairs)
    assert [here for here in range(target + 3) if copied.has(0, here)] == [here for _, here in pairs]


def test_without_copied_records_no_offset_is_translated() -> None:
    assert Copied([]).translated(0, 7) is None


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Account("c2", "t", "i", {}), "records of Kafka's topic t of cluster c"),
        (Account("c", "t2", "i", {}), "records of Kafka's topic t of cluster c"),
        (Account("c", "t", "i2", {}), "deleted and created again"),
    ],
)
def test_another_import_does_not_go_on(other: Account, why: str) -> None:
    with pytest.raises(Conflict, match=why):
        Account("c", "t", "i", {0: 7}).check(other)
