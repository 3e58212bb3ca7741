"""The command line as processes: signals, pipes, exit codes, and brokers that fail meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster, free_ports
from raftlog.client.consumer.core import CLOSE_S
from raftlog.client.options import seconds
from raftlog.client.producer import HURRIED_CLOSE
from raftlog.records.keys import partition_for_key
from raftlog.testing.waits import LIMIT_S
from tests.helpers.command_line import RAFTLOG, command, invoke, packages_of_our_names, run
from tests.helpers.real_cluster import call, create_topic, eventually, produce_surely, read_all, settled

pytestmark = pytest.mark.e2e


def lines(count: int) -> bytes:
    return b"".join(b"%07d %s\n" % (number, b"x" * 90) for number in range(count))


def piped(cluster: Cluster, *arguments: str, stdin: bytes, code: int = 0) -> str:
    """The standard error of a command that reads this from a pipe and ends with this code."""
    process = command(cluster, *arguments)
    _, errors = process.communicate(stdin, timeout=LIMIT_S)
    assert process.returncode == code, errors.decode()
    assert b"Traceback" not in errors
    return errors.decode()


class Feed:
    """A pipe of which a command can read more and more lines, until it ends."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.fed_bytes = 0
        source, self._sink = os.pipe()
        self.process = command(cluster, "produce", topic, "--batch-bytes", "20000", stdin=source)
        os.close(source)
        self._thread = threading.Thread(target=self._feed)

    def wait_for_more(self, more_bytes: int = 2 << 20) -> None:
        """Return once the command has read more: a pipe holds less."""
        goal = self.fed_bytes + more_bytes
        eventually(lambda: self.fed_bytes >= goal, what="lines that the command reads")

    def _feed(self) -> None:
        chunk = lines(500)
        try:
            while True:
                self.fed_bytes += os.write(self._sink, chunk)
        except BrokenPipeError:
            os.close(self._sink)


@contextmanager
def endless_produce(cluster: Cluster, topic: str) -> Iterator[Feed]:
    """A command that stores records until it gets a signal; some are stored."""
    create_topic(cluster.urls[0], topic)
    feed = Feed(cluster, topic)
    feed._thread.start()
    try:
        eventually(lambda: read_all(cluster.urls[0], topic), what="stored records")
        yield feed
    finally:
        feed.process.kill()
        feed.process.communicate()
        feed._thread.join()


def test_health_is_good_until_a_broker_is_down(cluster: Cluster) -> None:
    health = partial(invoke, cluster.bootstrap, "cluster", "health")
    create_topic(cluster.urls[0], "orders", 2)

    def healthy(*options: str) -> tuple[bytes, bytes] | None:
        """What is shown and said if all is well. A broker that is late by three seconds is a problem."""
        process = command(cluster, "cluster", "health", *options)
        shown, told = process.communicate(timeout=2 * LIMIT_S)
        return (shown, told) if process.returncode == 0 else None

    shown, told = eventually(healthy, what="a healthy cluster")
    assert (shown.count(b"yes"), told) == (3, b"healthy\n")
    found = json.loads(eventually(partial(healthy, "-o", "json"), what="a healthy cluster as JSON")[0])
    assert (found["healthy"], found["partitions"], found["problems"]) == (True, 2, [])
    cluster.kill(3)
    eventually(lambda: "broker 3 is down" in health(code=1).stderr, what="a broker that is down")
    cluster.kill(2)
    wanted = "orders/0 has no leader; without a majority it cannot be restored: start broker 2, 3"
    eventually(lambda: wanted in health(code=1).stderr, what="partitions without a leader")


def test_a_reader_that_has_enough_ends_a_consume_quietly(unbroken: Cluster) -> None:
    create_topic(unbroken.urls[0], "enough")
    piped(unbroken, "produce", "enough", stdin=lines(50_000))
    process = command(unbroken, "consume", "enough")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(LIMIT_S) == 0
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()


def test_following_shows_what_comes_until_a_signal(unbroken: Cluster) -> None:
    create_topic(unbroken.urls[0], "live", 3)
    process = command(unbroken, "consume", "live", "--follow")
    assert process.stdout is not None
    for word in ("one", "two"):
        produce_surely(unbroken.urls, "live", [word])
        assert process.stdout.readline() == word.encode() + b"\n"
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
    assert process.returncode == 0


def test_follow_waits_for_an_offset_above_the_end(unbroken: Cluster) -> None:
    create_topic(unbroken.urls[0], "later")
    process = command(unbroken, "consume", "later", "--follow", "--from", "3", "--limit", "1")
    for values in (["0", "1", "2"], ["3", "4"]):
        produce_surely(unbroken.urls, "later", values)
    assert process.communicate(timeout=LIMIT_S) == (b"3\n", b"")
    assert process.returncode == 0


# requirement: G3 D2
def test_commands_that_are_stopped_lose_nothing_and_share_the_rest(unbroken: Cluster) -> None:
    create_topic(unbroken.urls[0], "shared", 3)
    for partition in range(3):
        values = [str(number) for number in range(partition, 3000, 3)]
        produce_surely(unbroken.urls, "shared", values, partition=partition)
    seen: list[int] = []
    with command(unbroken, "consume", "shared", "--group", "crew", "--follow") as stopped:
        assert stopped.stdout is not None
        for line in stopped.stdout:
            seen.append(int(line))
            if len(seen) == 1000:
                sent_s = time.monotonic()
                stopped.send_signal(signal.SIGTERM)
    took_s = time.monotonic() - sent_s
    assert stopped.returncode == 0
    others = [command(unbroken, "consume", "shared", "--group", "crew") for _ in range(2)]
    for other in others:
        output, errors = other.communicate(timeout=2 * LIMIT_S)
        assert other.returncode == 0, errors.decode()
        seen += map(int, output.split())
    assert set(seen) == set(range(3000))
    # The last commit of a command that is stopped may take a while, in which no coordinator may answer.
    assert Counter(seen).total() < 3500 or took_s >= CLOSE_S, "nearly all of them once"


def test_a_signal_ends_a_produce_with_an_honest_count(unbroken: Cluster) -> None:
    with endless_produce(unbroken, "stopped") as feed:
        feed.process.send_signal(signal.SIGTERM)
        _, told = feed.process.communicate(timeout=LIMIT_S)
    stored = len(read_all(unbroken.urls[0], "stopped"))
    # A close after a signal takes 4 s at most, which a busy machine may exceed.
    unknown = re.search(rb"of unknown outcome: (\d+)", told)
    assert feed.process.returncode == (3 if unknown else 128 + signal.SIGTERM), told.decode()
    # The signal may fall between a record's way into the client and our taking note of it.
    assert 0 <= stored - int(told.split()[0]) <= int(unknown[1] if unknown else 0) + 1


def test_a_second_ctrl_c_ends_the_wait_for_answers_and_says_what_is_unknown(cluster: Cluster) -> None:
    with endless_produce(cluster, "stopped") as feed:
        for broker in cluster.brokers:
            cluster.pause(broker)
        feed.wait_for_more()
        sent_s = time.monotonic()
        feed.process.send_signal(signal.SIGINT)
        try:
            feed.process.communicate(timeout=1)  # it waits for answers that are on their way
        except subprocess.TimeoutExpired:
            feed.process.send_signal(signal.SIGINT)
        else:  # this test was stopped for so long
            assert time.monotonic() - sent_s >= seconds("close", HURRIED_CLOSE)
        _, output = feed.process.communicate(timeout=LIMIT_S)
    told = output.decode()
    assert feed.process.returncode == 3, told
    for broker in cluster.brokers:
        cluster.resume(broker)
    unknown = re.search(r"of unknown outcome: (\d+)", told)
    assert unknown is not None, told
    stored = len(read_all(cluster.urls[0], "stopped"))
    assert 0 <= stored - int(told.split()[0]) <= int(unknown[1]) + 1


def test_nothing_is_lost_or_doubled_when_leaders_die_under_produce_and_consume(cluster: Cluster) -> None:
    data = lines(100_000)
    create_topic(cluster.urls[0], "storm")
    # A line has 30 s to be stored, all lines before it included: a hundred batches.
    process = command(cluster, "produce", "storm", "--batch-bytes", "100000")
    assert process.stdin is not None
    half = len(data) // 2
    process.stdin.write(data[:half])
    eventually(lambda: read_all(cluster.urls[0], "storm"), what="stored records")
    died = cluster.leader("storm", 0)
    cluster.kill(died)
    _, told = process.communicate(data[half:], timeout=2 * LIMIT_S)
    assert process.returncode == 0, told.decode()
    assert told.startswith(b"100000 records, ")
    cluster.start(died)
    reader = command(cluster, "consume", "storm")
    assert reader.stdout is not None
    first = reader.stdout.read(100_000)
    cluster.kill(cluster.leader("storm", 0))
    rest, told = reader.communicate(timeout=2 * LIMIT_S)
    assert reader.returncode == 0, told.decode()
    assert first + rest == data


def test_dev_prints_its_lines_names_a_broker_that_died_and_leaves_none_behind(directory: Path) -> None:
    data = directory / "dev"
    port = free_ports(3)
    strangers = packages_of_our_names(directory / "project")
    for end in (signal.SIGHUP, signal.SIGKILL):  # the second time on its own data
        with subprocess.Popen(
            [*RAFTLOG, "dev", "--data", str(data), "--http-port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=strangers,
            text=True,
        ) as process:
            try:
                pids = _pids_told(process, data, port)
                if end is signal.SIGKILL:
                    os.kill(pids[1], signal.SIGKILL)
                    assert process.stderr is not None
                    told = iter(process.stderr.readline, "")
                    died = next(line for line in told if "killed" in line)
                process.send_signal(end)
                assert process.communicate(timeout=LIMIT_S)[0] == ""
            finally:
                process.terminate()
        assert process.returncode == (-end if end is signal.SIGKILL else 0)
        if end is signal.SIGHUP:  # it has waited for them
            assert not any(map(_is_running, pids))
    config = (data / "broker-2" / "raftlog.toml").resolve()
    assert died == f"broker 2 was killed by SIGKILL; start it with: raftlog serve --config {config}\n"
    eventually(lambda: not any(map(_is_running, pids)), what="the end of all brokers")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_dev_without_a_reader_ends_quietly(directory: Path) -> None:
    """``raftlog dev | true``."""
    with subprocess.Popen(
        [*RAFTLOG, "dev", "--data", str(directory / "dev"), "--http-port", str(free_ports(3))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        told = process.stderr.read()
    assert "Traceback" not in told
    assert process.returncode == 0


def test_ctrl_c_twice_while_dev_starts_leaves_no_traceback_and_no_broker(directory: Path) -> None:
    port = free_ports(3)
    with subprocess.Popen(
        [*RAFTLOG, "dev", "--data", str(directory / "dev"), "--http-port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        rest, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, told
    assert "Traceback" not in told
    assert "was killed" not in told, "a broker that stops late may be killed, and is not reported as lost"
    for pid in re.findall(r"pid=([0-9]+)", first + rest):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def _pids_told(process: subprocess.Popen[str], data: Path, port: int) -> list[int]:
    """The process ids of the brokers, from lines that must be as they are promised."""
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(4)]
    pids = []
    for broker, line in enumerate(told[:3], 1):
        words = dict(word.split("=", 1) for word in line.split())
        pids.append(int(words.pop("pid")))
        config = str((data / f"broker-{broker}" / "raftlog.toml").resolve())
        assert words == {
            "broker": str(broker),
            "http": f"http://127.0.0.1:{port + broker - 1}",
            "config": config,
        }
    assert told[3] == "ready\n"
    return pids


# requirement: D4
def test_a_refused_line_makes_all_lines_of_a_transaction_invisible(unbroken: Cluster) -> None:
    create_topic(unbroken.urls[0], "once", 2)
    too_large = b"a\nb\n" + b"x" * (2 << 20) + b"\n"
    told = piped(unbroken, "produce", "once", "--delivery", "exactly_once", stdin=too_large, code=1)
    assert "the transaction is aborted: no record is visible" in told
    piped(unbroken, "produce", "once", "--delivery", "exactly_once", stdin=b"c\n")
    assert run(unbroken, "consume", "once")[0] == b"c\n"


# requirement: C6 G6 ST1
def test_a_group_is_shown_as_it_is_stored(unbroken: Cluster) -> None:
    url = unbroken.urls[0]
    create_topic(url, "orders")
    produce_surely([url], "orders", ["a", "b", "c"])

    def coordinators(field: str) -> set[object]:
        path = "/v1/groups/mail/coordinator"
        return {settled(each, "GET", path).json[field] for each in unbroken.urls}

    found, offsets = coordinators("partition"), "/v1/topics/__offsets/partitions"
    partition = partition_for_key(b"mail", len(settled(url, "GET", offsets).rows("items")))
    assert found == {partition}
    eventually(
        lambda: coordinators("broker_id") == {unbroken.leader("__offsets", partition)},
        what="the leader of the partition as the coordinator at all brokers",
    )
    body = {"offsets": [{"topic": "orders", "partition": 0, "offset": 2}]}
    assert settled(url, "PUT", "/v1/groups/mail/offsets", body).status == 204

    def end() -> int:
        """The end of the partition; each new leader may add an offset."""
        return settled(url, "GET", "/v1/topics/orders/partitions/0/offsets").number("offset")

    def is_listed() -> bool:
        (shown,) = settled(url, "GET", "/v1/groups/mail/offsets").rows("items")
        found = (shown["committed_offset"], shown["last_consumed_offset"], shown["lag"])
        return found == (2, 1, end() - 2)

    def is_described() -> bool:
        described = run(unbroken, "group", "describe", "mail")[0].decode().splitlines()
        assert described[-2].split()[:6] == ["topic", "partition", "consumed", "committed", "end", "lag"]
        return described[-1].split()[:6] == ["orders", "0", "1", "2", str(end()), str(end() - 2)]

    eventually(is_listed, what="the offset with its lag")
    eventually(is_described, what="the offset with its lag on the command line")
    rows = run(unbroken, "consume", "__offsets")[0]
    key = {"kind": "offset", "group": "mail", "topic": "orders", "partition": 0}
    *_, value = (  # a repeated commit is stored twice
        json.loads(line.removeprefix(prefix))
        for line in rows.splitlines()
        if line.startswith(prefix := json.dumps(key, separators=(",", ":")).encode())
    )
    assert value["offset"] == 2
    path = f"{offsets}/{partition}/records"
    eventually(lambda: call(url, "GET", path).rows(), what="the records of the offset")
