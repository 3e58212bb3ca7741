"""Extreme fields, batches, lines, queries and headers are no unexpected errors; the next client is served."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice

import pytest

from broker.ports import Limits
from tests.helpers.async_tests import beside
from tests.helpers.http_server import HttpServer, serve
from verification.abuse.bad_inputs import ONE_OF, all_of, contract_of, sample, sent
from verification.abuse.extremes import Contract, Extreme
from verification.abuse.raw_inputs import tabled_bodies, tabled_heads
from verification.abuse.target import NOT_ANSWERED, Target, is_wrong

DRAWN = 500
SEEDS = (1, 2, 3, 4, 5)


def answers_to(server: HttpServer, requests: Iterable[Extreme], contract: Contract) -> Counter[str]:
    """Send them all; whoever comes next is served."""
    target = Target([server.url], [], "orders", 1.0)
    answers = sent(target, contract, requests)
    record = b'{"records":[{"value":1}]}'
    target.ask("POST", "/v1/topics", b'{"name":"calm"}', {"Content-Type": "application/json"})
    served, _ = target.ask("POST", "/v1/topics/calm/records", record, {"Content-Type": "application/json"})
    assert served == "200"
    return answers


def broken(answers: Counter[str], caplog: pytest.LogCaptureFixture) -> list[str]:
    """Wrong and missing answers, and errors that were logged."""
    found = [answer for answer in answers if is_wrong(answer) or answer.startswith(NOT_ANSWERED)]
    return found + [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


# requirement: N2
@pytest.mark.parametrize("one_of", [8 * ONE_OF, pytest.param(1, marks=pytest.mark.slow)])
def test_no_extreme_of_a_field_is_an_unexpected_error(one_of: int, caplog: pytest.LogCaptureFixture) -> None:
    with beside(serve(Limits(wait_ms_max=10, heartbeat_ms=10))) as server:
        contract = contract_of(Target([server.url], [], "orders", 1.0))
        answers = answers_to(server, sample(all_of(contract), one_of), contract)
    assert broken(answers, caplog) == []
    assert answers.total() > 15_000 / one_of
    assert answers["422 invalid_request"] > answers.total() / 2


# requirement: N2
@pytest.mark.parametrize("one_of", [60, pytest.param(1, marks=pytest.mark.slow)])
def test_no_batch_line_query_or_header_is_an_unexpected_error(
    one_of: int, caplog: pytest.LogCaptureFixture
) -> None:
    with beside(serve(Limits(wait_ms_max=10, heartbeat_ms=10))) as server:
        contract = contract_of(Target([server.url], [], "orders", 1.0))
        heads = islice(tabled_heads(contract), 0, None, one_of)
        answers = answers_to(server, chain(tabled_bodies(contract), heads), contract)
    assert broken(answers, caplog) == []
    refusals = ("422 corrupt_batch", "422 invalid_record", "413 record_too_large", "422 invalid_request")
    assert min(answers[each] for each in refusals) >= 8, answers


@pytest.mark.parametrize(
    "seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:])]
)
def test_no_mixture_of_extremes_is_an_unexpected_error(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    with beside(serve(Limits(wait_ms_max=10, heartbeat_ms=10))) as server:
        contract = contract_of(Target([server.url], [], "orders", 1.0))
        answers = answers_to(server, islice(contract.mixed(seed), DRAWN), contract)
    assert broken(answers, caplog) == []
    assert answers["200"] > DRAWN / 10


def test_equal_seeds_draw_equal_requests() -> None:
    with beside(serve()) as server:
        contract = contract_of(Target([server.url], [], "orders", 1.0))
    first, again, other = (list(islice(contract.mixed(seed), 60)) for seed in (1, 1, 2))
    assert first == again != other
