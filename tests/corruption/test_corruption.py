"""Damaged disks: a slice of what ``python -m verification.corruption`` runs, and proof that it can fail."""

from __future__ import annotations

import pytest

from raftlog.records.batch import split_batches
from tests.helpers.planted_bugs import Edit, planted
from verification.corruption import case
from verification.corruption.case import run_case
from verification.corruption.cluster import COMPACTED_FROM, fill
from verification.corruption.damage import CATEGORIES, KINDS, categories_of
from verification.corruption.suite import run_suite

CASES, ALL_REPLICAS = 20, 4

BLIND = Edit(
    "raftlog.storage.log_storage:FileRange.read",
    "find_damage(data, self.first, self.last, self.terms)",
    "None",
)


# requirement: M3
def test_damage_of_any_file_is_found_never_served_and_repaired_without_an_operator() -> None:
    summary = run_suite(CASES, ALL_REPLICAS)
    assert summary.is_good, summary
    assert summary.repaired > CASES / 3
    assert (summary.missed, summary.detected + summary.harmless) == (0, CASES + ALL_REPLICAS)


def test_on_sound_disks_nothing_is_noticed_or_repaired() -> None:
    for seed in range(4):
        outcome = run_case(seed, damages=False)
        assert outcome.is_good, outcome
        assert (outcome.noticed, outcome.repaired) == (0, 0)


@pytest.mark.slow
def test_many_more_of_them() -> None:
    summary = run_suite(400, 100, first=10_000)
    assert summary.is_good, summary


def test_every_sort_of_file_is_there_to_be_damaged() -> None:
    filled = fill(0)
    assert set(categories_of(filled.images[min(filled.images)])) == set(CATEGORIES)
    assert len(KINDS) == 7


def test_a_cluster_that_serves_what_it_does_not_check_is_convicted() -> None:
    with planted(BLIND):
        summary = run_suite(5, 0, first=245)
    assert summary.served_damaged, "a seed from 245 to 249 damages what is read"


# requirement: M3
def test_a_search_for_damage_that_looks_at_nothing_misses_it() -> None:
    look = Edit(
        "raftlog.repair.verify:examine",
        "return _Examiner(filesystem, directory, pace).run()",
        "return VerifyReport(directory=directory, state=initial_state(), doubt=None)",
    )
    with planted(look):
        summary = run_suite(1, 0)
    assert summary.missed, summary
    assert not summary.is_good


# requirement: M3
def test_compacted_segments_are_damaged_and_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = fill(COMPACTED_FROM)
    logs = [data for path, data in filled.images[min(filled.images)].items() if path.endswith(".log")]
    gaps = [batch for log in logs for batch in split_batches(log) if batch.header.is_gap]
    assert len(gaps) > 3
    assert len(filled.keys) == len(filled.acknowledged)
    monkeypatch.setattr(case, "COMPACTED", 1.0)
    summary = run_suite(10, 4, first=500)
    assert summary.is_good, summary
    assert summary.repaired


def test_a_compaction_that_loses_records_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "COMPACTED", 1.0)
    case._filled.cache_clear()
    loses = Edit(
        "raftlog.storage.compaction:Round.keeps",
        "record.offset >= self.newest.newest(record.key)",
        "record.offset > self.newest.newest(record.key)",
    )
    try:
        with planted(loses):
            summary = run_suite(2, 0, first=500)
    finally:
        case._filled.cache_clear()
    assert summary.lost
