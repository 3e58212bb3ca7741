"""Brokers that host a counter, and repair it, on disks in memory."""

from __future__ import annotations

from collections.abc import Callable

from raftlog.hosting.hosted_replica import HostedState
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId
from tests.helpers.counter import GROUP, Counter
from tests.helpers.simulated_brokers import Place, SimulatedBroker, SimulatedBrokers
from tests.helpers.virtual_time import eventually


class HostingNode(SimulatedBroker):
    """One broker, in one incarnation of its process, with a counter."""

    def __init__(self, place: Place, files: FakeFilesystem) -> None:
        super().__init__(place, "/data", repairs=True)
        self.files = files
        self.counter = Counter(self.host, self.logs, place.nodes)

    @property
    def state(self) -> HostedState | None:
        """The state of the counter here."""
        return self.supervisor.state_of(GROUP)

    @property
    def leads(self) -> bool:
        """Whether the counter's leader is here, and ready."""
        return self.counter.group is not None and self.counter.group.is_ready

    async def start(self) -> None:
        """Host the counter; it may take a while to serve."""
        await self.host.start()
        self.supervisor.host(self.counter)
        await self.supervisor.start()


class HostingCluster(SimulatedBrokers[HostingNode]):
    """Brokers with a replica of the counter each."""

    def __init__(self, brokers: int = 3) -> None:
        self.files = {NodeId(number): FakeFilesystem() for number in range(1, brokers + 1)}
        super().__init__(self.files)

    def new(self, place: Place) -> HostingNode:
        return HostingNode(place, self.files[place.node_id])

    async def ready(self) -> None:
        await self.until(lambda: self.leader is not None)

    @property
    def leader(self) -> HostingNode | None:
        """The broker that leads in the newest term."""
        ready = [broker for broker in self if broker.leads]
        return max(ready, key=_term, default=None)

    @property
    def leading(self) -> HostingNode:
        """The leader, which must be there."""
        assert self.leader is not None
        return self.leader

    @property
    def followers(self) -> list[HostingNode]:
        """All brokers but the leader."""
        return [broker for broker in self if broker is not self.leading]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once the condition is met."""
        await eventually(holds, within_s=60.0)


def _term(broker: HostingNode) -> int:
    return 0 if broker.counter.group is None else broker.counter.group.term
