"""Runs a correct client in a separate process, which the attacks must not disturb.

Fifty times a second the client checks the liveness of every broker and produces a numbered value, on
persistent connections, and measures the durations. Less often it requests the readiness of a broker, commits
offsets for a group of each coordinator, runs a transaction and sends a delayed message. At the end the client
reports the acknowledged values, which a final read must find.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Final, Self

import aiohttp

from raftlog.wire import groups as group_operations
from raftlog.wire import health, transactions
from raftlog.wire import records as record_operations
from raftlog.wire.problems import read_problem

PAUSE_S: Final = 0.02
DUTY_PAUSE_S: Final = 0.2
DELAY_MS: Final = 100
DUTIES: Final = ("ready", "commit", "transaction", "delayed message")
_TAKE, _STOP = "take", "stop"


@dataclass(slots=True)
class Seen:
    """The bystander's results of a period: counts of responses, and times in seconds."""

    probes: list[float] = field(default_factory=list)
    produces: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    acknowledged: list[str] = field(default_factory=list)
    duties: dict[str, list[float]] = field(default_factory=lambda: {duty: [] for duty in DUTIES})
    """Durations of the bystander's completed requests, in seconds, by kind of request."""

    def add(self, later: Seen) -> None:
        """Add the results of the next period to these results."""
        self.probes += later.probes
        self.produces += later.produces
        self.refused += later.refused
        self.acknowledged += later.acknowledged
        for duty, times in later.duties.items():
            self.duties[duty] += times

    @property
    def slowest_duty_s(self) -> float:
        """Longest duration of any of the bystander's requests, in seconds."""
        return max(itertools.chain(*self.duties.values()), default=0.0)


class Bystander:
    """A client process that sends requests to the brokers while the ``with`` block runs."""

    def __init__(self, urls: Sequence[str], topic: str, groups: Sequence[str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=_run, args=(other, list(urls), topic, list(groups)), daemon=True
        )

    def take(self) -> Seen:
        """Return the results since the last call of ``take``."""
        self._pipe.send(_TAKE)
        seen = self._pipe.recv()
        assert isinstance(seen, Seen)
        return seen

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(_STOP)
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()


def _run(pipe: Connection, urls: list[str], topic: str, groups: list[str]) -> None:
    asyncio.run(_main(pipe, urls, topic, groups))


async def _main(pipe: Connection, urls: list[str], topic: str, groups: list[str]) -> None:
    seen = Seen()
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(timeout=timeout) as session:

        async def ask(method: str, url: str, body: object, times: str, value: str | None) -> None:
            began = time.monotonic()
            try:
                async with session.request(method, url, json=body) as answer:
                    content, status = await answer.read(), answer.status
            except (OSError, aiohttp.ClientError, TimeoutError) as error:
                seen.refused[type(error).__name__] += 1
                return
            getattr(seen, times).append(time.monotonic() - began)
            if status != 200:
                seen.refused[_why(times, status, content)] += 1
            elif value is not None:
                seen.acknowledged.append(value)

        async def probe(url: str) -> None:
            while True:
                await ask("GET", url + health.LIVE.path, None, "probes", None)
                await asyncio.sleep(PAUSE_S)

        async def produce(url: str, partition: int) -> None:
            path = record_operations.PRODUCE_TO_PARTITION.at(topic=topic, partition=partition)
            number = 0
            while True:
                number += 1
                value = f"{partition}-{number}"
                await ask("POST", url + path, {"records": [{"value": value}]}, "produces", value)
                await asyncio.sleep(PAUSE_S)

        work = [
            *(_attend_to(duty, session, urls, topic, groups, lambda: seen) for duty in DUTIES),
            *(probe(url) for url in urls),
        ]
        work += [produce(url, at) for at, url in enumerate(urls)]
        tasks = [asyncio.create_task(each) for each in work]
        while (asked := await asyncio.to_thread(pipe.recv)) == _TAKE:
            taken, seen = seen, Seen()
            pipe.send(taken)
        assert asked == _STOP
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _attend_to(
    duty: str,
    session: aiohttp.ClientSession,
    urls: list[str],
    topic: str,
    groups: list[str],
    seen: Callable[[], Seen],
) -> None:
    for number in itertools.count():
        method, path, body, value = _duty(duty, topic, groups[number % len(groups)], number)
        began = time.monotonic()
        try:
            async with session.request(method, urls[number % len(urls)] + path, json=body) as answer:
                content = await answer.read()
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            seen().refused[f"{duty}: {type(error).__name__}"] += 1
        else:
            if answer.status < 300:
                seen().duties[duty].append(time.monotonic() - began)
                seen().acknowledged += [value] if value else []
            else:
                seen().refused[_why(duty, answer.status, content)] += 1
        await asyncio.sleep(DUTY_PAUSE_S)


def _why(what: str, status: int, content: bytes) -> str:
    """Return the status of a refused request with the reason that the broker gives, such as a lost leader."""
    return f"{what}: {status} {read_problem(content)}"


def _duty(duty: str, topic: str, group: str, number: int) -> tuple[str, str, object, str | None]:
    """Return the method, path and body of a request of the given kind, and the value that it stores."""
    value = f"{duty} {number}"
    records, offset = [{"value": value}], {"topic": topic, "partition": 0, "offset": 0}
    match duty:
        case "ready":
            return "GET", health.READY.path, None, None
        case "commit":
            return "PUT", group_operations.OFFSETS.path.format(group=group), {"offsets": [offset]}, None
        case "transaction":
            return "POST", transactions.EXECUTE.path, {"records": [{**records[0], "topic": topic}]}, value
        case _:
            path = f"{record_operations.PRODUCE.path.format(topic=topic)}?delay={DELAY_MS}ms"
            return "POST", path, {"records": records}, value
