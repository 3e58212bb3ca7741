"""Readers that read from any replica, and the checks of the responses.

Decides: from which replica a reader reads, with which bounds of staleness, and which records the response
must reflect. A reader changes the replica at each read and continues at its position, so that the checkers of
histories see gaps and repetitions.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import Final

from msgspec.structs import replace

from broker.broker import Broker
from chaos.history import Outcome
from partitions.values import FetchRequest, FetchResult, key_of
from raftlog.errors import OffsetOutOfRange, RaftlogError
from raftlog.types import Offset
from transactions.records import Participant
from verification.simulator.clients import Client
from verification.simulator.scenarios.followers.odds import FollowerOdds
from verification.simulator.scenarios.transactions.clients import Story
from verification.simulator.scenarios.transactions.readers import TransactionReader
from verification.simulator.simulated_cluster import SimulatedCluster

FRESH: Final = "I38 reads are as fresh as their bound"
KNOWN: Final = "I18 reads are committed"
OWN_WRITES: Final = "I39 min_offset is known"
TOKEN_ODDS: Final = 0.3
CLOCK_MARGIN: Final = 1.25  # clocks of brokers run up to a tenth too slow or too fast


class Acknowledged:
    """The acknowledged offsets of one partition, each with the time of the acknowledgement."""

    def __init__(self, cluster: SimulatedCluster, partition: int) -> None:
        self._sends = cluster.history.sends
        self._partition = partition
        self._seen = 0
        self._times: list[float] = []
        self._newest: list[int] = []  # the highest offset up to each time

    def by(self, time_s: float) -> int:
        """Return the highest offset that was acknowledged at this time; -1 if there was none."""
        for send in self._sends[self._seen :]:
            if (
                send.partition == self._partition
                and send.outcome is Outcome.ACKNOWLEDGED
                and send.offset is not None
            ):
                self._times.append(send.completed_s)
                self._newest.append(max(send.offset, self._newest[-1] if self._newest else -1))
        self._seen = len(self._sends)
        place = bisect_right(self._times, time_s)
        return self._newest[place - 1] if place else -1


class FollowerReader(Client):
    """Reads one partition from its start on, each time from any replica, with bounded staleness."""

    def __init__(self, cluster: SimulatedCluster, name: str, partition: int, odds: FollowerOdds) -> None:
        super().__init__(cluster, name)
        self._partition = partition
        self._odds = odds
        self._acknowledged = Acknowledged(cluster, partition)

    async def run(self) -> None:
        """Read from changing replicas until the run ends."""
        position = 0
        while self.cluster.is_producing:
            await self.cluster.rest()
            try:
                position = await self._read(position)
            except OffsetOutOfRange as error:
                if "min_offset" in str(error):
                    self.cluster.violated(OWN_WRITES, f"{self.name}: {error}")
                    continue
                poll = self.deleted(self._partition, position, error)
                self.cluster.history.polls.append(poll)
                position = poll.log_start
            except RaftlogError:
                await self.pause()

    async def _read(self, position: int) -> int:
        request = self._odds.request(self.rng, position, committed_only=self.rng.random() < 0.5)
        if self.rng.random() < TOKEN_ODDS:
            newest = -1 if self.cluster.odds.recovers else self._acknowledged.by(self.cluster.loop.now)
            request = replace(request, min_offset=Offset(newest + 1))
        invoked = self.cluster.loop.now
        result: FetchResult = await self.ask(
            self.machine(),
            partial(self._fetch, request),
            partial(self.cluster.responses.read, self.cluster.checked[self._partition]),
        )
        poll = self.polled(self._partition, position, invoked, result)
        self.cluster.history.polls.append(poll)
        if not poll.records:
            await self.pause()
        return result.next_offset

    async def _fetch(self, request: FetchRequest, broker: Broker) -> FetchResult:
        """Fetch, and check when the broker answers that the response reflects all that this replica must
        know.
        """
        began = self.cluster.loop.now
        target = self.cluster.checked[self._partition]
        result: FetchResult = await broker.gateway.fetch(target, request)
        where = f"broker {broker.node_id} for {self.name}, by broker {result.served_by}"
        due_s = began - CLOCK_MARGIN * request.max_staleness_ms / 1000
        due = self._acknowledged.by(due_s)
        if result.high_watermark <= due and not self.cluster.odds.recovers:
            self.cluster.violated(
                FRESH, f"{where}: it ends at {result.high_watermark}, {due} was acknowledged at {due_s:.3f}"
            )
        if result.high_watermark < request.min_offset:
            self.cluster.violated(OWN_WRITES, f"{where}: {result.high_watermark} of {request.min_offset}")
        replica = broker.manager.replicas.get(key_of(target))
        if result.served_by == broker.node_id and replica is not None:
            known = replica.group.commit_index + 1
            if result.high_watermark > known:
                self.cluster.violated(KNOWN, f"{where}: {result.high_watermark}, and it knows {known}")
        return result


class FollowerTransactionReader(TransactionReader):
    """Reads a partition that takes part in transactions, from any replica."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        story: Story,
        target: Participant,
        odds: FollowerOdds,
        *,
        committed: bool,
    ) -> None:
        super().__init__(cluster, name, story, target, committed=committed)
        self._odds = odds

    async def read(self, position: int, *, wait_ms: int) -> FetchResult:
        """Read once from any replica. Records that are stable at one replica may not be stable yet at
        another.
        """
        request = self._odds.request(self.rng, position, committed_only=self._committed_only)
        result: FetchResult = await self.ask(
            self.machine(),
            lambda broker: broker.gateway.fetch(self._target, request),
            partial(self.story.judge.read, self._target, self._committed_only),
        )
        return result


def follower_readers(
    cluster: SimulatedCluster, odds: FollowerOdds, story: Story | None
) -> list[FollowerReader | FollowerTransactionReader]:
    """Create the readers of a run; with a ``story``, also readers of the story's transactions."""
    readers: list[FollowerReader | FollowerTransactionReader] = [
        FollowerReader(cluster, f"f{number}", number % cluster.odds.partitions, odds)
        for number in range(odds.readers)
    ]
    if story is None:
        return readers
    for number, target in enumerate(story.targets):
        for committed in (True, False):
            name = f"f{number} {'committed' if committed else 'uncommitted'}"
            readers.append(FollowerTransactionReader(cluster, name, story, target, odds, committed=committed))
    return readers
