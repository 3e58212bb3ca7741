"""Runs one process with several copiers, which leave and return.

    python -m chaos.exactly_once SETTINGS

``SETTINGS`` is JSON, see ``chaos.consumer_groups.crowd.Settings``. SIGTERM ends the process: all copiers
leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys

import msgspec

from chaos.consumer_groups.crowd import Settings
from chaos.exactly_once.copiers import ClientCopier, Copier, HttpCopier
from chaos.exactly_once.copies import SOURCE
from chaos.http_client import Client
from chaos.stacks import show_on_signal
from raftlog.errors import RaftlogError

LEAVE_S = 5.0
PAUSE_S_MAX = 2.0


async def main(settings: Settings) -> None:
    """Run the copiers until SIGTERM."""
    show_on_signal()
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    rng = random.Random(settings.seed)
    async with Client(settings.urls, SOURCE, rng) as client:
        await asyncio.gather(
            *(_come_and_go(settings, number, client, rng, ending) for number in range(settings.members))
        )


async def _come_and_go(
    settings: Settings, number: int, client: Client, rng: random.Random, ending: asyncio.Event
) -> None:
    """Run copiers one after another. Half of them keep the name and the transactional id of the previous
    copier.
    """
    process = settings.name.partition("-")[0]
    while not ending.is_set():
        name = f"{process}-{number}" if number % 4 < 2 else f"{settings.name}-{number}"
        copier: Copier
        if number % 2:
            copier = HttpCopier(settings.group, name, client)
        else:
            copier = ClientCopier(settings.group, name, settings.urls)
        running = asyncio.create_task(copier.run())
        ended = asyncio.create_task(ending.wait())
        life_s = rng.expovariate(1 / settings.life_s)
        await asyncio.wait((running, ended), timeout=life_s, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if running.done():
            running.result()  # raises its error: no copier ends by itself
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        with contextlib.suppress(RaftlogError, TimeoutError):
            await asyncio.wait_for(copier.leave(), LEAVE_S)
        print(f"{name}: {dict(copier.errors)}", flush=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), rng.uniform(0, PAUSE_S_MAX))


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Settings)))
