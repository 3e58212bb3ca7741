"""An operator who redrives the dead letters of a queue, and repeats requests that got no answer."""

from __future__ import annotations

import asyncio
from typing import Final

from queues.job_steps import key_digest
from queues.requests import DeadJob, Reopen, Settled
from raftlog.errors import RaftlogError
from verification.simulator.clients import TIMEOUT_MS, Client
from verification.simulator.scenarios.queues.judge import Judge, Place
from verification.simulator.scenarios.queues.odds import CREW, MAIL, QueueOdds
from verification.simulator.simulated_cluster import SimulatedCluster

REDRIVEN: Final = "dead letters redriven"
LETTERS_MAX: Final = 5  # of one request


class Redriver(Client):
    """Sends requests to redrive each dead letter, until one of them is answered."""

    def __init__(self, cluster: SimulatedCluster, odds: QueueOdds, judge: Judge) -> None:
        super().__init__(cluster, "redriver")
        self._queue = odds
        self._judge = judge
        self._settled: set[tuple[Place, int]] = set()
        self.requests: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Redrive dead letters until the producers of the run end."""
        while self.cluster.is_producing:
            await self.cluster.rest()
            await asyncio.sleep(self.rng.expovariate(1.0) * self._queue.redrive_s)
            letters = sorted(self._judge.letters - self._settled)
            found = self.machine().broker
            topic = None if found is None else found.controller.image.topics.get(MAIL)
            if letters and topic is not None:
                count = min(len(letters), self.rng.randint(1, LETTERS_MAX))
                await self._redrive(self.rng.sample(letters, count), topic.topic_id)

    async def _redrive(self, letters: list[tuple[Place, int]], topic_id: str) -> None:
        jobs = tuple(
            DeadJob(*place, key_digest(self._judge.keys[place]), redrives + 1) for place, redrives in letters
        )
        request = Reopen(group=CREW, topic=MAIL, topic_id=topic_id, jobs=jobs)
        if await self._ask(request):
            self._settled.update(letters)
        if not self.cluster.is_healed and self.rng.random() < self._queue.late:
            task = asyncio.get_running_loop().create_task(self._again(request))
            self.requests.add(task)
            task.add_done_callback(self.requests.discard)

    async def _ask(self, request: Reopen) -> bool:
        for job in request.jobs:
            self._judge.asks_again((job.partition, job.offset))
        try:
            reply = await self.ask(
                self.machine(), lambda broker: broker.groups.service.ask(request, timeout_ms=TIMEOUT_MS)
            )
        except RaftlogError as error:
            for job in request.jobs:
                self._judge.redriven_in_vain((job.partition, job.offset), error)
            await self.pause()
            return False
        assert isinstance(reply, Settled), reply
        return True

    async def _again(self, request: Reopen) -> None:
        """Repeat the request for a redrive: if the job has been done since, it is done once more."""
        await asyncio.sleep(self.rng.expovariate(1.0) * self._queue.late_s)
        await self._ask(request)
