"""Runs one consumer of the demo's group, as a process.

    python -m chaos.demo.consumer BOOTSTRAP GROUP TOPIC NAME BOOK SESSION_S

The consumer writes the offset and the carrier of each flight to its book, a file, before it acknowledges the
flight. After a kill, another consumer gets the flights that were written but not committed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import msgspec

from raftlog import Client

SESSION_S = 3
RECORDS_MAX = 500  # of one page


class Page(msgspec.Struct, frozen=True):
    """Flights of one partition that a consumer has handled, as (offset, carrier). ``at_s`` is a time of the
    machine's monotonic clock.
    """

    at_s: float
    partition: int
    flights: list[tuple[int, str]]


def main(bootstrap: str, group: str, topic: str, name: str, book: Path, session_s: int) -> None:
    """Join the group, wait for a line on standard input, and consume until this process is killed."""
    with (
        Client(bootstrap) as client,
        client.consumer(
            group, topic, member_id=name, session_timeout=f"{session_s}s", value=json.loads
        ) as consumer,
        book.open("ab", buffering=0) as pages,
    ):
        sys.stdin.readline()
        for batch in consumer.batches(limit=RECORDS_MAX):
            flights = [(message.offset, message.value["carrier"]) for message in batch]
            page = Page(time.monotonic(), batch[0].partition, flights)
            pages.write(msgspec.json.encode(page) + b"\n")
            os.fsync(pages.fileno())


if __name__ == "__main__":
    _, bootstrap, group, topic, name, book, session_s = sys.argv
    main(bootstrap, group, topic, name, Path(book), int(session_s))
