"""Requests that are made from the served OpenAPI document get the answers that it describes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from broker.ports import Limits
from raftlog.testing.waits import LIMIT_S
from raftlog.wire import documents
from tests.helpers.async_tests import beside
from tests.helpers.http_server import serve

SHORT, LONG = 1, 25

# That what the schema allows is accepted cannot be asked: names of settings, base64, and offsets that
# are there lie outside what a schema says. All other checks hold: no 500, described statuses, media
# types, headers and bodies, and what the schema forbids is refused.


def check_all(examples: int, mode: GenerationMode, aim: Callable[[schemathesis.Case], None]) -> None:
    """Make so many requests of each operation; ``aim`` may point them at what exists."""
    with beside(serve(Limits(wait_ms_max=10, heartbeat_ms=10))) as server:
        asyncio.run(
            server.cluster.controller.create_topic(
                "orders", partitions=3, replication_factor=3, config={}, timeout_ms=1000
            )
        )
        schema = schemathesis.openapi.from_url(f"{server.url}{documents.OPENAPI.path}")
        for result in schema.get_all_operations():
            operation = result.ok()

            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def send(case: schemathesis.Case) -> None:
                aim(case)
                case.call_and_validate(timeout=LIMIT_S, excluded_checks=[positive_data_acceptance])

            with contextlib.suppress(Unsatisfiable):  # nothing can be wrong with a bare path
                send()


def anywhere(_: schemathesis.Case) -> None:
    """Mostly at topics that do not exist."""


def at_what_exists(case: schemathesis.Case) -> None:
    """At a topic that is there, unless that would delete it."""
    if case.method != "DELETE" and "topic" in case.path_parameters:
        case.path_parameters["topic"] = "orders"
        if "partition" in case.path_parameters:
            case.path_parameters["partition"] = 0


def test_requests_as_described_are_answered_as_described() -> None:
    check_all(SHORT, GenerationMode.POSITIVE, at_what_exists)


@pytest.mark.slow
@pytest.mark.parametrize("aim", [anywhere, at_what_exists])
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_many_requests_are_answered_as_described(
    mode: GenerationMode, aim: Callable[[schemathesis.Case], None]
) -> None:
    check_all(LONG, mode, aim)
