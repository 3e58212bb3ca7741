"""Counts the flights of each carrier with three consumers of one group; one of the consumers is killed.

A group delivers at least once, so some flights are delivered twice after a kill. The consumers only write
down the flights that they handle. ``Counts`` adds the flights up by partition and offset: the second delivery
of a flight replaces the first.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from chaos.demo.consumer import SESSION_S, Page
from chaos.demo.report import compare, say
from raftlog import Client, RaftlogError
from raftlog.__main__ import command_of
from raftlog.testing.waits import LIMIT_S

GROUP = "carriers"
CONSUMERS = ("consumer-1", "consumer-2", "consumer-3")
VICTIM = "consumer-2"
LOOK_S = 0.02

Found = TypeVar("Found")
Owners = dict[str, tuple[int, ...]]
"""The partitions of each consumer, by its name."""


class GroupFailed(Exception):
    """The consumers did not make the expected progress in time."""


@dataclass(slots=True)
class Counts:
    """The flights that the consumers have handled. A flight that is delivered again has an equal offset, so
    it counts once.
    """

    carriers: dict[tuple[int, int], str] = field(default_factory=dict)  # by partition and offset
    deliveries: Counter[str] = field(default_factory=Counter)  # by consumer
    began_s: dict[tuple[str, int], float] = field(default_factory=dict)  # by consumer and partition

    @property
    def repeated(self) -> int:
        """The number of flights that were delivered again."""
        return self.deliveries.total() - len(self.carriers)

    def add(self, consumer: str, page: Page) -> None:
        """Add the flights of a page that a consumer has handled."""
        self.began_s.setdefault((consumer, page.partition), page.at_s)
        self.deliveries[consumer] += len(page.flights)
        self.carriers.update({(page.partition, offset): carrier for offset, carrier in page.flights})

    def per_carrier(self) -> Counter[str]:
        """Return the number of flights of each carrier, counting repeated deliveries once."""
        return Counter(self.carriers.values())

    def taken_over_s(self, partitions: Iterable[int], killed_s: float) -> float | None:
        """Return the time from the kill until other consumers handled flights of all these partitions.

        Returns None if the other consumers found no flights in them.
        """
        times = [
            min(began) - killed_s
            for number in partitions
            if (
                began := [
                    at_s
                    for (consumer, partition), at_s in self.began_s.items()
                    if partition == number and consumer != VICTIM
                ]
            )
        ]
        return max(times, default=None)


class Books:
    """Reads the books of the consumers: the files to which they write the handled flights."""

    def __init__(self, directory: Path) -> None:
        self.paths = {name: directory / f"{name}.jsonl" for name in CONSUMERS}
        self._files = {name: path.open("a+b") for name, path in self.paths.items()}
        self._unfinished = dict.fromkeys(
            CONSUMERS, b""
        )  # an incomplete line, which is being written or was cut by the kill
        for file in self._files.values():
            file.seek(0)

    def read(self, counts: Counts) -> None:
        """Add the flights in new lines of all books to ``counts``."""
        for name, file in self._files.items():
            *lines, self._unfinished[name] = (self._unfinished[name] + file.read()).split(b"\n")
            for line in lines:
                counts.add(name, msgspec.json.decode(line, type=Page))

    def close(self) -> None:
        """Close the files of all books."""
        for file in self._files.values():
            file.close()


def run(
    bootstrap: str,
    topic: str,
    rows: Sequence[tuple[str, bytes]],
    directory: Path,
    session_s: int = SESSION_S,
) -> bool:
    """Consume the flights in a group, and print the figures; return whether all counts are right."""
    began = time.monotonic()
    counts, books = Counts(), Books(directory)
    try:
        with Client(bootstrap) as client, _consumers(bootstrap, topic, books, session_s) as processes:
            _say_started(processes)
            before = _until(lambda: _owners(client, CONSUMERS), "each consumer has partitions")
            say(f"before: {_shown(before)}")
            for process in processes.values():
                _begin(process)
            killed_s = _kill_at_work(processes[VICTIM], counts, books, len(rows))
            survivors = [name for name in CONSUMERS if name != VICTIM]
            after = _until(lambda: _owners(client, survivors), "the others have all partitions")
            say(f"after:  {_shown(after)}")
            _until(lambda: _has_all(counts, books, len(rows)), "all flights are counted")
    except GroupFailed as error:
        say(f"THE DEMO FAILED: {error}")
        return False
    finally:
        books.close()
    taken_over_s = counts.taken_over_s(before[VICTIM], killed_s)
    return verdict(counts, rows, taken_over_s, time.monotonic() - began, session_s)


def verdict(
    counts: Counts,
    rows: Sequence[tuple[str, bytes]],
    taken_over_s: float | None,
    took_s: float,
    session_s: int = SESSION_S,
) -> bool:
    """Print the figures of the group; return whether the number of flights is right for each carrier."""
    if taken_over_s is None:
        say("taken over: the other consumers found no flights left")
    else:
        say(f"taken over after {taken_over_s:.1f} s; the session of the killed consumer lasts {session_s} s")
    say(f"delivered twice, and counted once, by partition and offset: {counts.repeated:,} flights")
    say(f"handled in {took_s:.1f} s: {', '.join(f'{name} {n:,}' for name, n in counts.deliveries.items())}")
    wanted = Counter(str(json.loads(value)["carrier"]) for _, value in rows)
    found = counts.per_carrier()
    say(", ".join(f"{carrier} {number:,}" for carrier, number in found.most_common()))
    right = sum(found[carrier] == number for carrier, number in wanted.items())
    results = [
        compare("flights counted by the group", len(rows), found.total()),
        compare("carriers with the right count", len(wanted), right),
    ]
    say("the counts are right, although a consumer was killed" if all(results) else "THE DEMO FAILED")
    return all(results)


def _kill_at_work(process: subprocess.Popen[bytes], counts: Counts, books: Books, flights: int) -> float:
    """Kill a consumer once it has handled a tenth of its share; return the time of the kill."""
    tenth = max(1, flights // len(CONSUMERS) // 10)

    def is_at_work() -> bool:
        books.read(counts)
        return counts.deliveries[VICTIM] >= tenth or len(counts.carriers) == flights

    _until(is_at_work, f"{VICTIM} works")
    process.kill()
    killed_s = time.monotonic()
    process.wait()
    books.read(counts)
    say(f"kill -9: {VICTIM}, after {counts.deliveries[VICTIM]:,} flights")
    return killed_s


def _has_all(counts: Counts, books: Books, flights: int) -> bool:
    books.read(counts)
    return len(counts.carriers) >= flights


def _owners(client: Client, consumers: Sequence[str]) -> Owners | None:
    """Return the partitions of each consumer; None until the group has exactly these consumers and each has
    its share.
    """
    try:
        group = client.groups.describe(GROUP)
    except RaftlogError:
        return None  # no consumer has joined yet
    owners = {
        member.member_id: tuple(number for each in member.assignment for number in each.partitions)
        for member in group.members
    }
    is_done = group.state == "stable" and owners.keys() == set(consumers) and all(owners.values())
    return owners if is_done else None


def _shown(owners: Mapping[str, tuple[int, ...]]) -> str:
    return "; ".join(
        f"{name} has partitions {', '.join(map(str, partitions))}"
        for name, partitions in sorted(owners.items())
    )


def _say_started(processes: Mapping[str, subprocess.Popen[bytes]]) -> None:
    started = ", ".join(f"{name} (pid {process.pid})" for name, process in processes.items())
    say(f"group {GROUP!r} counts the flights of each carrier: {started}")


def _begin(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"begin\n")
    process.stdin.flush()


def _until(look: Callable[[], Found | None], what: str) -> Found:
    """Call ``look`` until its result is true, and return this result. Raises ``GroupFailed`` after a time
    limit.
    """
    deadline = time.monotonic() + LIMIT_S
    while not (found := look()):
        if time.monotonic() > deadline:
            raise GroupFailed(f"{what}: not within {LIMIT_S:.0f} s")
        time.sleep(LOOK_S)
    return found


@contextmanager
def _consumers(
    bootstrap: str, topic: str, books: Books, session_s: int
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start three consumers as processes, which are killed after the block."""
    command = [*command_of("chaos.demo.consumer"), bootstrap, GROUP, topic]
    processes = {
        name: subprocess.Popen([*command, name, str(path), str(session_s)], stdin=subprocess.PIPE)
        for name, path in books.paths.items()
    }
    try:
        yield processes
    finally:
        for process in processes.values():
            with process:
                process.kill()
