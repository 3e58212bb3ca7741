"""The services that pass the suite: those of a broker, and those of the fake cluster behind tests of HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.conformance.services_suite import Broker, ServicesSuite
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.fake_services import fake_cluster


@asynccontextmanager
async def real_broker() -> AsyncIterator[Broker]:
    async with ControlledCluster(brokers=1) as cluster:
        yield cluster.any


@asynccontextmanager
async def fake_broker() -> AsyncIterator[Broker]:
    yield fake_cluster(None, 1).services


class TestBroker(ServicesSuite):
    @pytest.fixture
    def open_broker(self) -> ServicesSuite.Open:
        return real_broker


class TestFakes(ServicesSuite):
    @pytest.fixture
    def open_broker(self) -> ServicesSuite.Open:
        return fake_broker
