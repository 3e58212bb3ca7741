"""Attacks on open ports cost neither a broker nor anybody's records; `make abuse` is the long form."""

from __future__ import annotations

import pytest

from chaos.abuse.suite import run_suite
from chaos.abuse.target import NOT_ANSWERED

pytestmark = pytest.mark.e2e

TOO_LARGE = {"413 record_too_large"}
REFUSED = {
    "900 bombs in one body": TOO_LARGE,
    "240,000 batches in one body": TOO_LARGE,
    "1.3 million records, deflated": TOO_LARGE,
    "foreign Host and Origin": {"421 misdirected_request", "403 origin_not_allowed"},
}


# requirement: N2
def test_attacks_break_no_promise() -> None:
    found = run_suite(scale=0.08)
    assert found.failures == []
    assert found.acknowledged > 60
    told = {result.name: result.responses for result in found.results}
    assert told["requests with one mistake"].total() >= 150
    for name, refusals in REFUSED.items():
        answers = {answer for answer in told[name] if not answer.startswith(NOT_ANSWERED)}
        assert answers <= refusals, name
