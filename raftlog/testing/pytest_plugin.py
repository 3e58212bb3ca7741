"""The pytest fixtures ``raftlog`` and ``raftlog_cluster``; pytest finds them when raftlog is installed.

pytest imports this module in every project that has installed raftlog. So the code of brokers and clients is
imported only by the first fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raftlog.testing.kit import Raftlog, RaftlogCluster
    from raftlog.testing.supervisor import Supervisor

FIXTURES = ("raftlog", "raftlog_cluster")
_key = pytest.StashKey["Supervisor"]()


def _supervisor(config: pytest.Config) -> Supervisor:
    """The supervisor of this test session. The first call starts the process of the brokers."""
    found = config.stash.get(_key, None)
    if found is None:
        from raftlog.testing.supervisor import Supervisor

        found = config.stash[_key] = Supervisor()
        config.add_cleanup(found.close)
    return found


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the process of the brokers before the first test, if a test needs brokers."""
    used = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if used.isdisjoint(FIXTURES) or session.config.option.collectonly:
        return
    from raftlog.testing.orders import Create

    supervisor = _supervisor(session.config)
    if "raftlog" in used:
        supervisor.begin(Create(1))


@pytest.fixture(scope="session")
def _raftlog_broker(pytestconfig: pytest.Config) -> Iterator[Raftlog]:
    from raftlog.testing.kit import Raftlog

    broker = Raftlog(_supervisor(pytestconfig))
    yield broker
    broker.close()


@pytest.fixture
def raftlog(_raftlog_broker: Raftlog, request: pytest.FixtureRequest) -> Iterator[Raftlog]:
    """One broker that all tests share. Its clock is reset after each test."""
    _raftlog_broker.begin_test(request.node.name)
    yield _raftlog_broker
    _raftlog_broker.clock.reset()


@pytest.fixture
def raftlog_cluster(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Iterator[RaftlogCluster]:
    """Three brokers for this test alone."""
    from raftlog.testing.kit import RaftlogCluster

    cluster = RaftlogCluster(_supervisor(pytestconfig))
    cluster.begin_test(request.node.name)
    yield cluster
    cluster.close()
