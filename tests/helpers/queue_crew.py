"""Workers of a queue, each a process: ``python -m tests.helpers.queue_crew URLS TOPIC DIRECTORY 32 8 30s``.

The last three are the numbers of workers and of victims, and the length of the leases. Each worker writes
what it gets and has done to a file of its own. A victim stops at its second job, and never answers; the
other workers begin when all victims have stopped, since they may take all jobs. The processes end with the
standard input of the first one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from raftlog import Client, LeaseLost
from raftlog.client.blocking_queue import Job
from raftlog.testing.waits import eventually

WORK_S = 0.05  # at most


@dataclass(frozen=True, slots=True)
class Got:
    """One delivery, as a worker has seen it; times in seconds since 1970."""

    worker: int
    pid: int
    place: tuple[int, int]
    deliveries: int
    got_s: float
    until_s: float
    done_s: float | None
    is_hanging: bool


def deliveries_in(directory: Path) -> list[Got]:
    """What all workers have written so far, in the order of time."""
    found: list[Got] = []
    for path in directory.glob("worker-*.jsonl"):
        for line in path.read_text().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue  # its worker was killed
            if "done" in row:
                found[-1] = replace(found[-1], done_s=row["done"])
            else:
                found.append(
                    Got(
                        row["worker"],
                        row["pid"],
                        (row["partition"], row["offset"]),
                        row["deliveries"],
                        row["got"],
                        row["until"],
                        None,
                        row["hangs"],
                    )
                )
    return sorted(found, key=lambda each: each.got_s)


def work(urls: str, topic: str, directory: Path, number: int, *, is_victim: bool, lease: str) -> None:
    """One worker, without end."""
    rng = random.Random(number)
    count = 0
    with Client(urls) as client, (directory / f"worker-{number}.jsonl").open("a") as log:

        def write(**row: object) -> None:
            log.write(json.dumps(row) + "\n")
            log.flush()

        for job in client.queue(topic).jobs(lease=lease):
            count += 1
            hangs = is_victim and count == 2
            write(**_row(job, number), hangs=hangs)
            if hangs:
                signal.pause()
            time.sleep(rng.random() * WORK_S)
            try:
                job.ack()
            except LeaseLost:
                continue  # it was too slow: another worker has the job
            write(done=time.time())


def _row(job: Job, number: int) -> dict[str, object]:
    return {
        "worker": number,
        "pid": os.getpid(),
        "partition": job.message.partition,
        "offset": job.message.offset,
        "deliveries": job.deliveries,
        "got": time.time(),
        "until": job.lease_until_ms / 1000,
    }


def _hanging(directory: Path) -> int:
    return sum(each.is_hanging for each in deliveries_in(directory))


def main() -> None:
    """Fork the workers; kill those that are left at the end of the input."""
    urls, topic, directory, workers, victims, lease = sys.argv[1:]
    children: list[int] = []
    for number in range(int(workers)):
        if number == int(victims):
            eventually(lambda: _hanging(Path(directory)) == number, what="the victims have jobs")  # noqa: B023
        child = os.fork()
        if child == 0:
            try:
                work(urls, topic, Path(directory), number, is_victim=number < int(victims), lease=lease)
            finally:
                os._exit(1)
        children.append(child)
    sys.stdin.read()
    for child in children:
        os.kill(child, signal.SIGKILL)  # not waited for: none of these ids is another process by now


if __name__ == "__main__":
    main()
