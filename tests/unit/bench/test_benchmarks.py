"""The parts of the benchmark suite that need no brokers. No figure is judged here."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

import pytest

from api.cli import closed_loop, raw_http
from api.cli.closed_loop import Measured
from bench import processes, report
from bench.frames import PRODUCE, FrameClient, Frames
from bench.kafka_wire import KafkaConnection, KafkaReader
from bench.load import median
from bench.nats import NatsReader
from bench.report import Floor, Section
from bench.rows_of_growth import plot
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch


def _measured(records_per_s: float) -> Measured:
    return Measured(records_per_s=records_per_s, p50_ms=1.0, p99_ms=2.0, requests=10)


class _Counted:
    def __init__(self) -> None:
        self.sent = 0

    async def send(self) -> None:
        self.sent += 1
        await asyncio.sleep(0)

    async def close(self) -> None:
        pass


async def test_the_closed_loop_sends_no_more_than_it_was_told() -> None:
    connections = [_Counted(), _Counted()]

    found = await closed_loop.run(connections, records=10, seconds=60, requests_max=7)

    assert found.requests == 7
    assert sum(connection.sent for connection in connections) == 7 + len(
        connections
    )  # each spoke once before


def test_percentiles_are_values_that_were_measured() -> None:
    rising = [float(n) for n in range(1, 101)]

    assert closed_loop.percentile(rising, 50) == 51
    assert closed_loop.percentile(rising, 99) == 100
    assert closed_loop.percentile([], 50) == 0


def test_the_median_is_taken_of_each_figure() -> None:
    assert median([_measured(1), _measured(100), _measured(7)]).records_per_s == 7


def test_a_page_names_its_machine_and_says_which_promise_is_broken() -> None:
    figures = {"small": {"ours": _measured(2000), "theirs": _measured(1000)}, "large": {"ours": _measured(5)}}
    section = Section("Produce", "How.", [report.throughput_table(figures, "ours")], ["a.svg"])
    section.floors += [Floor("speed", 1, 2), Floor("delay", 1, 2, is_upper=True)]

    text = report.page([section], commit="1234567", took_s=60, rounds=5)

    assert "| small | 2.0 k/s | 1.0 k/s (2.00x) |" in text
    assert "| large | 0.0 k/s | - |" in text
    assert "| speed | 1.00 | ≥ 2.00 | **no** |" in text
    assert "| delay | 1.00 | ≤ 2.00 | yes |" in text
    assert "![Produce](images/a.svg)" in text
    assert "| commit |" in text


def test_the_same_points_give_the_same_small_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    points = {"ours": [(1.0, 10.0), (10.0, 20.0)]}

    plot(tmp_path / "a.svg", "partitions", points, is_logarithmic=True)
    plot(tmp_path / "b.svg", "partitions", points, is_logarithmic=True)

    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.svg").stat().st_size < 200_000


class _Collecting(Frames):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, int, bytes]] = []

    def frame(self, kind: int, stream: int, payload: memoryview) -> None:
        self.found.append((kind, stream, bytes(payload)))


@pytest.mark.parametrize("step", [1, 7, 4096, 1 << 20])
def test_frames_are_cut_out_of_any_split(step: int) -> None:
    payloads = [b"", b"a" * 10, b"b" * 100_000, b"c" * 70_000, b"d"]
    stream = b"".join(struct.pack(">IBB", len(p), PRODUCE, n) + p for n, p in enumerate(payloads))
    frames = _Collecting()

    _feed(frames, stream, step)

    assert frames.found == [(PRODUCE, n, p) for n, p in enumerate(payloads)]


async def test_a_nats_reader_counts_messages_and_their_bytes() -> None:
    async def read() -> tuple[int, int]:
        reader = NatsReader()
        here, there = socket.socketpair()
        with there:
            await asyncio.get_running_loop().create_connection(lambda: reader, sock=here)
            for part in (
                b"INFO {}\r\nMSG a 1 5\r\nhel",
                b"lo\r\nMSG a 1 reply 2\r\nhi\r\nMS",
                b"G a 1 0\r\n\r\n",
            ):
                _feed(reader, part, len(part))
            counted = await reader.read()
            await reader.close()
            await asyncio.sleep(0)
        return counted

    assert await read() == (3, 7)


async def test_an_http_answer_is_whole_when_its_length_has_come() -> None:
    async def ask() -> list[tuple[int, int]]:
        connection = raw_http.HttpConnection()
        here, there = socket.socketpair()
        with there:
            await asyncio.get_running_loop().create_connection(lambda: connection, sock=here)
            found = []
            for answer in (
                b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nA: 7\r\n\r\nhello",
                b"HTTP/1.1 204 No\r\n\r\n",
            ):
                asking = asyncio.ensure_future(connection.ask(b"GET / HTTP/1.1\r\n\r\n"))
                await asyncio.sleep(0)
                _feed(connection, answer, 6)
                found.append(((await asking).status, (await asking).body_bytes))
            await connection.close()
            await asyncio.sleep(0)
        return found

    assert await ask() == [(200, 5), (204, 0)]


async def test_a_kafka_reader_goes_on_behind_the_last_whole_batch() -> None:
    batch = build_batch([Record(b"x")] * 3, codec=Codec.NONE, timestamp_ms=0)
    data = batch + batch[:70]
    answer = (
        struct.pack(">iihsi", 0, 1, 1, b"t", 1) + struct.pack(">ihqqii", 0, 0, 3, 3, -1, len(data)) + data
    )

    class Answering(KafkaConnection):
        async def ask(self, key: int, version: int, body: bytes) -> bytes:
            return answer

    reader = KafkaReader(Answering(), "t", 0)

    assert await reader.read() == (3, len(batch))


def test_processes_are_read_as_the_kernel_counts_them() -> None:
    import os

    assert processes.cpu_s(os.getpid()) > 0
    assert processes.private_bytes(os.getpid()) > 1 << 20


def _feed(protocol: asyncio.BufferedProtocol, data: bytes, step: int) -> None:
    at = 0
    while at < len(data):
        memory = protocol.get_buffer(-1)
        part = data[at : at + min(step, len(memory))]
        memory[: len(part)] = part
        protocol.buffer_updated(len(part))
        at += len(part)


async def test_a_client_of_bare_processes_is_told_of_a_lost_connection() -> None:
    async def send() -> None:
        client = FrameClient(0, b"payload")
        here, there = socket.socketpair()
        await asyncio.get_running_loop().create_connection(lambda: client, sock=here)
        there.close()
        await client.send()

    with pytest.raises(ConnectionError):
        await send()
