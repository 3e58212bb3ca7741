"""Attacks on open ports cost neither a broker nor anybody's records; `make abuse` is the long form."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from verification.abuse import on_state
from verification.abuse.bad_inputs import mixed
from verification.abuse.suite import ATTACKS, run_suite
from verification.abuse.target import AT_ONCE, NOT_ANSWERED, Attack

pytestmark = pytest.mark.e2e

TOO_LARGE = {"413 record_too_large"}
REFUSED = {
    "900 bombs in one body": TOO_LARGE,
    "240,000 batches in one body": TOO_LARGE,
    "1.3 million records, deflated": TOO_LARGE,
    "foreign Host and Origin": {"421 misdirected_request", "403 origin_not_allowed"},
}
OF_STATE = {
    "leader epochs of 2^64": {"422 invalid_request"},
    "prepared for a day": {"422 invalid_request"},
    "connections of one address": {"200"},  # to others
}
# A neighbour may slow a broker down: what counts is that everybody is served again.
SHORT = [replace(each, is_strict=False) for each in ATTACKS if each not in on_state.ATTACKS]
SEEDS, SECONDS = (11, 12), 60.0


# requirement: N2
def test_attacks_break_no_promise() -> None:
    found = run_suite(SHORT, scale=0.04)
    assert found.failures == []
    assert found.acknowledged > 60
    told = {result.name: result.responses for result in found.results}
    assert told["requests with one mistake"].total() >= 100
    assert told["batches, lines, queries, headers"].total() >= 100
    assert told["requests drawn from a seed"].total() >= 30
    for name, refusals in REFUSED.items():
        answers = {answer for answer in told[name] if not answer.startswith(NOT_ANSWERED)}
        assert answers <= refusals, name


# requirement: N2
@pytest.mark.slow
def test_attacks_on_state_break_no_promise() -> None:
    found = run_suite(on_state.ATTACKS, scale=0.08)
    assert found.failures == []
    told = {result.name: result.responses for result in found.results}
    for name, refusals in OF_STATE.items():
        answers = {answer for answer in told[name] if not answer.startswith(NOT_ANSWERED)}
        assert answers <= refusals, name


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_extremes_drawn_from_a_seed_break_no_promise(seed: int) -> None:
    drawn = partial(mixed, seed=seed, seconds=SECONDS)
    found = run_suite([Attack(f"seed {seed}", drawn, bound_mib=AT_ONCE * 16, is_strict=True)])
    assert found.failures == []
    assert found.results[0].peak_mib <= found.results[0].bound_mib
