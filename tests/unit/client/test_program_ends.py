"""Programs that end with an open iterator: within seconds, and with nothing on standard error."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from raftlog import Client
from tests.helpers.async_tests import beside
from tests.helpers.whole_broker import TOPIC, Trouble, whole_broker

END_S: Final = 28.0  # a call that nobody ends takes 30 s; processes are slow beside other work
ITERATORS: Final = {
    "queue": "client.queue('orders', group=name).jobs(limit=4, lease='60s')",
    "consumer": "client.consumer(name, ['orders'])",
    "batches": "client.consumer(name, ['orders']).batches()",
    "tail": "client.partition('orders', 0).tail('earliest')",
}
BLOCKING: Final = """
import sys; from raftlog import Client
name, kept = sys.argv[2], []
client = Client(sys.argv[1])
kept.append({iterator})
for _ in kept[0]:
    print(flush=True)
    {end}
"""
IN_A_BLOCK: Final = """
import sys; from raftlog import Client
name, kept = sys.argv[2], []
with Client(sys.argv[1]) as client:
    kept.append({iterator})
    for _ in kept[0]:
        print(flush=True)
        {end}
"""
ASYNCHRONOUS: Final = """
import asyncio, sys; from raftlog.aio import Client
name, kept = sys.argv[2], []
async def main():
    async with Client(sys.argv[1]) as client:
        kept.append({iterator})
        async for _ in kept[0]:
            print(flush=True)
            {end}
asyncio.run(main())
"""
UNKEPT: Final = """
import asyncio, sys; from raftlog.aio import Client
name = sys.argv[2]
async def main():
    async with Client(sys.argv[1]) as client:
        async for _ in {iterator}:
            print(flush=True)
            {end}
asyncio.run(main())
"""
FAILURES: Final = {"sys.exit(3)": (3, ""), "1 / 0": (1, "ZeroDivisionError: division by zero")}
ENDS: Final = {"break": (0, ""), **FAILURES}


# requirement: P6
@pytest.mark.parametrize(
    ("program", "iterators"),
    [
        pytest.param(BLOCKING, ["queue", "consumer", "batches", "tail"], id="blocking"),
        pytest.param(IN_A_BLOCK, ["queue", "tail"], id="in a block"),
        pytest.param(ASYNCHRONOUS, ["batches", "tail"], id="asynchronous"),
        pytest.param(UNKEPT, ["queue", "consumer"], id="not kept"),
    ],
)
@pytest.mark.parametrize("end", ["break", *(pytest.param(end, marks=pytest.mark.slow) for end in FAILURES)])
def test_a_program_ends_with_an_open_iterator(program: str, iterators: Sequence[str], end: str) -> None:
    code, last_line = ENDS[end]
    with beside(whole_broker(partitions=1)) as broker, ExitStack() as running:
        with Client(broker.url) as client:
            for number in range(8):
                client.send(TOPIC, str(number))
        children = []
        for name in iterators:
            text = program.format(iterator=ITERATORS[name], end=end)
            children.append(running.enter_context(started(text, broker.url, name)))
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "\n"
        for child in children:
            _, told = child.communicate(timeout=END_S)
            assert child.returncode == code, told
            assert told.strip().endswith(last_line)
            assert told.count("Traceback") == bool(told) == bool(last_line), told


@contextmanager
def started(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A child process that runs this program, until the end of the block."""
    command = [sys.executable, "-W", "always", "-c", program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


QUEUE_LOOPS: Final = {
    "waits for jobs": """
import sys; from raftlog import Client
with Client(sys.argv[1]) as client:
    for job in client.queue('orders').jobs():
        job.ack()
        print('job', flush=True)
""",
    "has jobs": """
import sys, time; from raftlog import Client
with Client(sys.argv[1]) as client:
    for job in client.queue('orders').jobs(limit=2):
        print('job', flush=True)
        time.sleep(60)
""",
}


@pytest.mark.parametrize(("loop", "trouble"), [("waits for jobs", Trouble.LOST), ("has jobs", Trouble.HELD)])
def test_ctrl_c_ends_a_queue_loop_without_any_broker(loop: str, trouble: Trouble) -> None:
    with beside(whole_broker(partitions=1)) as broker:
        with Client(broker.url) as client:
            client.send(TOPIC, "x")
            if loop == "has jobs":
                client.send(TOPIC, "y")
        with started(QUEUE_LOOPS[loop], broker.url) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "job\n"
            broker.trouble("/v1/", *[trouble] * 99)
            child.send_signal(signal.SIGINT)
            _, told = child.communicate(timeout=END_S)
        broker.release.set()
    assert child.returncode == -signal.SIGINT, told
    assert told.strip().endswith("KeyboardInterrupt")
    assert told.count("Traceback") == 1, told
