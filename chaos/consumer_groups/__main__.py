"""Runs one process of a crowd: several members that come, leave and vanish, each after a random time.

    python -m chaos.consumer_groups SETTINGS

``SETTINGS`` is JSON, see ``crowd.Settings``. SIGTERM ends the process: all members leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import time
from pathlib import Path

import msgspec

from chaos.consumer_groups.crowd import Settings
from chaos.consumer_groups.history import Recorder, Surprise
from chaos.consumer_groups.members import ClientMember, Place, PollMember, ProtocolMember
from chaos.http_client import Client
from chaos.stacks import show_on_signal
from raftlog.errors import RaftlogError

LEAVE_S = 3.0
PAUSE_S_MAX = 3.0


async def main(settings: Settings) -> None:
    """Run the members until SIGTERM."""
    show_on_signal()
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    rng = random.Random(settings.seed)
    with Recorder(Path(settings.file)) as recorder:
        lives = [
            asyncio.create_task(_live(settings, number, random.Random(rng.getrandbits(64)), recorder, ending))
            for number in range(settings.members)
        ]
        await asyncio.gather(*lives)


async def _live(
    settings: Settings, number: int, rng: random.Random, recorder: Recorder, ending: asyncio.Event
) -> None:
    """Run one member after another. Some members have the name of the previous member."""
    turn = 0
    while not ending.is_set():
        name = f"{settings.name}-{number}-{turn}"
        life_s = rng.expovariate(1 / settings.life_s)
        is_last = time.monotonic() + life_s > settings.steady_at_s
        await _one(settings, name, number, rng, recorder, ending, None if is_last else life_s)
        turn += rng.random() < 0.7
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), rng.uniform(0, PAUSE_S_MAX))


async def _one(
    settings: Settings,
    name: str,
    number: int,
    rng: random.Random,
    recorder: Recorder,
    ending: asyncio.Event,
    life_s: float | None,
) -> None:
    """Run a member for some time, and let it leave. Half of the members that end early vanish without
    leaving.
    """
    place = Place(tuple(settings.urls), settings.group, settings.topic)
    async with Client(settings.urls, settings.topic, rng) as client:
        member: ProtocolMember | PollMember | ClientMember
        if number % 3 == 0:
            member = ProtocolMember(place, name, client, recorder)
        elif number % 3 == 1:
            member = PollMember(place, name, client, recorder)
        else:
            member = ClientMember(place, name, recorder)
        running, ended = asyncio.create_task(member.run()), asyncio.create_task(ending.wait())
        await asyncio.wait((running, ended), timeout=life_s, return_when=asyncio.FIRST_COMPLETED)
        if running.done() and (error := running.exception()) is not None:
            recorder.add(Surprise(member=name, what=f"{type(error).__name__}: {error}"))
        ended.cancel()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if ending.is_set() or rng.random() < 0.5:
            with contextlib.suppress(RaftlogError, TimeoutError):
                await asyncio.wait_for(member.leave(), LEAVE_S)


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Settings)))
