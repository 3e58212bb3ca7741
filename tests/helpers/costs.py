"""What one act costs each broker of a real cluster: Python calls, allocations, or system calls.

Decides: the cost of an act is the least of some attempts, each begun and ended while the cluster is idle.
Timers that fire meanwhile, and threads that wake in another order, only add to it. Leaves to others: what
counts as a call or an allocation (``metered``).
"""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from raftlog.testing.waits import eventually
from tests.helpers import metered

ATTEMPTS: Final = 10  # whoever needs more on a busy machine begins again
WARM_UPS: Final = 5
PAUSE_S: Final = 0.05  # at most; a random one, so that no periodic timer fires in each attempt
IDLE_S: Final = 0.02  # in which followers end what an answer did not wait for
ROUND_ATTEMPTS: Final = 2
ROUNDS: Final = 5  # of heartbeats, in one attempt
_OWN: Final = f"{Path(__file__).parents[2]}/"
_INSTALLED: Final = "/site-packages/"

Counts = Mapping[str, int]
Meters = Mapping[int, Callable[[], Callable[[], Counts]]]
"""For each broker: begin to count; what is returned tells the counts since."""


def least_costs(meters: Meters, act: Callable[[], object], *, attempts: int = ATTEMPTS) -> dict[int, Counts]:
    """The least counts of each broker, each count for itself."""
    for _ in range(min(WARM_UPS, attempts)):
        act()
    found: dict[int, list[Counts]] = {broker: [] for broker in meters}
    rng = random.Random("pauses")
    for _ in range(attempts):
        time.sleep(PAUSE_S * rng.random())
        ends = {broker: begin() for broker, begin in meters.items()}
        act()
        time.sleep(IDLE_S)
        for broker, end in ends.items():
            found[broker].append(end())
    return {broker: _least(counts) for broker, counts in found.items()}


def round_costs(meters: Meters) -> dict[int, int]:
    """The calls of one round of heartbeats of each broker, while nothing else happens."""
    found: dict[int, list[int]] = {broker: [] for broker in meters}
    for _ in range(ROUND_ATTEMPTS):
        ends = {broker: begin() for broker, begin in meters.items()}
        for broker, end in ends.items():
            counts = eventually(partial(_some_rounds, end), what=f"rounds of heartbeats of broker {broker}")
            found[broker].append(counts["round_calls"] // counts["rounds"])
    return {broker: min(calls) for broker, calls in found.items()}


def _some_rounds(end: Callable[[], Counts]) -> Counts | None:
    """The counts once there are a few rounds in them."""
    counts = end()
    return counts if counts["rounds"] >= ROUNDS else None


def _least(attempts: Sequence[Counts]) -> Counts:
    names = set().union(*attempts)
    return {name: min(counts.get(name, 0) for counts in attempts) for name in names}


def own_files(calls: Counts) -> frozenset[str]:
    """The files of this project with a function that was called."""
    files = {name.partition(":")[0] for name, count in calls.items() if count}
    return frozenset(file for file in files if file.startswith(_OWN) and _INSTALLED not in file)


class MeteredProcess:
    """A broker below ``metered``: its command, and its meter."""

    def __init__(self, directory: Path, broker: int, *, is_memory_seen: bool = False) -> None:
        self._path = str(directory / f"meter-{broker}{metered.MEMORY if is_memory_seen else ''}")
        self.command = (sys.executable, "-P", str(metered.__file__), self._path)

    def begin(self) -> Callable[[], Counts]:
        """The counts since now, when they are asked for."""
        before = self._counts()
        return lambda: {name: count - before[name] for name, count in self._counts().items()}

    def begin_files(self) -> Callable[[], Counts]:
        """The number of files of this project that run from now on, as ``files``, when it is asked for.

        The question takes long, so calls are not counted meanwhile.
        """
        calls_since = self.begin_by_function()
        return lambda: {"files": len(own_files(calls_since()))}

    def begin_by_function(self) -> Callable[[], Counts]:
        """The calls of each function since now, when they are asked for."""
        before = self._asked(metered.FUNCTIONS)
        return lambda: {
            name: count - before.get(name, 0) for name, count in self._asked(metered.FUNCTIONS).items()
        }

    def _counts(self) -> dict[str, int]:
        return self._asked(metered.COUNTS)

    def _asked(self, wanted: bytes) -> dict[str, int]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._path)
            connection.sendall(wanted)
            return json.loads(connection.makefile().read())  # type: ignore[no-any-return]


class TracedProcess:
    """A broker below ``strace``: its command, and its system calls by name."""

    def __init__(self, directory: Path, broker: int) -> None:
        self._path = directory / f"trace-{broker}"
        self.command = ("strace", "-D", "-f", "-qq", "-o", str(self._path))

    def begin(self) -> Callable[[], Counts]:
        """The system calls that began after now, when they are asked for."""
        before = self._path.stat().st_size
        return lambda: self._counts(before)

    def _counts(self, before: int) -> Counts:
        with self._path.open("rb") as trace:
            trace.seek(before)
            lines = trace.read().decode(errors="replace").splitlines()
        calls = [line.partition(" ")[2].strip() for line in lines]
        return Counter(call.partition("(")[0] for call in calls if "(" in call and "resumed>" not in call)
