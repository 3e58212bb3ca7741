"""What the rows of Spark promise, and how they are shown."""

from __future__ import annotations

import pytest

from bench.rows_of_spark import AT_LEAST, EXACTLY, floors, rows_of
from bench.spark_program import Figures

OURS = Figures(
    [1.0, 200_000.0, 180_000.0], {EXACTLY: [120_000.0], AT_LEAST: [150_000.0]}, [300.0, 310.0, 900.0]
)


@pytest.mark.parametrize(
    ("theirs", "kept"),
    [
        (None, [True, True, True]),
        (Figures([200_000.0], {"": [200_000.0]}, [100.0, 100.0]), [True, True, True, True, True]),
        (Figures([300_000.0], {"": [250_000.0]}, [100.0, 100.0]), [True, True, True, False, False]),
    ],
)
def test_medians_are_compared_with_the_targets(theirs: Figures | None, kept: list[bool]) -> None:
    assert [floor.is_kept for floor in floors(OURS, theirs)] == kept


def test_each_delivery_has_a_row() -> None:
    assert [cells[0] for cells in rows_of("raftlog", OURS)] == [
        "raftlog: source",
        "raftlog: sink, exactly once",
        "raftlog: sink, at least once",
        "raftlog: trigger",
    ]


def test_a_connector_without_triggers_says_so() -> None:
    assert rows_of("Kafka", Figures([1.0], {"": [1.0]}, []))[-1] == ["Kafka: trigger", "not measured"]
