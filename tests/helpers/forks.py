"""Pieces of work in processes of their own, so many at once.

Unlike a pool, this survives a process that dies or hangs: its result is None.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import TypeVar

Value = TypeVar("Value")


def forked(
    work: Sequence[tuple[str, Callable[[], Value | None]]], jobs: int, limit_s: float
) -> Iterator[tuple[str, Value | None]]:
    """Names and results as they come; None for work that raised, died, or took longer than ``limit_s``."""
    waiting = list(reversed(work))
    running: dict[Connection, tuple[str, ForkProcess, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name, do = waiting.pop()
            receiver, sender = multiprocessing.Pipe(duplex=False)
            process = multiprocessing.get_context("fork").Process(target=_run, args=(do, sender))
            process.start()
            sender.close()
            running[receiver] = name, process, time.monotonic() + limit_s
        first_deadline = min(deadline for _, _, deadline in running.values())
        ready = wait([*running], max(0.0, first_deadline - time.monotonic()))
        late = [end for end, (_, _, deadline) in running.items() if deadline <= time.monotonic()]
        for receiver in [end for end in running if end in ready or end in late]:
            name, process, _ = running.pop(receiver)
            try:
                yield name, receiver.recv() if receiver in ready else None
            except EOFError:  # it died
                yield name, None
            receiver.close()
            process.kill()
            process.join()


def _run(do: Callable[[], Value | None], sender: Connection) -> None:
    sender.send(do())
