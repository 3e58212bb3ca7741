"""``raftlog cluster restart``: brokers are restarted one after another, and no client sees an error."""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from pathlib import Path
from subprocess import Popen

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from tests.helpers.command_line import command
from tests.helpers.real_cluster import create_topic, eventually, read_all

pytestmark = pytest.mark.e2e

PARTITIONS = 3
PAUSE_S = 0.01  # between requests, so that clients leave the processors to brokers that start


class Load:
    """A client that sends and one that reads; every error that they see counts."""

    def __init__(self, cluster: Cluster) -> None:
        self._bootstrap = cluster.bootstrap
        self.sent: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self.read = 0
        self.errors: list[str] = []
        self.slowest_s = 0.0
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._fetch)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        rng = random.Random(7)
        with Client(self._bootstrap) as client:
            while not self._stopping.is_set():
                partition = rng.randrange(PARTITIONS)
                value = f"record {len(self.sent[partition])}"
                began = time.monotonic()
                try:
                    client.send("orders", value, partition=partition)
                except Exception as error:
                    self.errors.append(f"send: {error!r}")
                else:
                    self.sent[partition].append(value)
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                time.sleep(PAUSE_S)

    def _fetch(self) -> None:
        at = [0] * PARTITIONS
        with Client(self._bootstrap) as client:
            while not self._stopping.is_set():
                for partition in range(PARTITIONS):
                    try:
                        for message in client.partition("orders", partition).read(at[partition], limit=100):
                            at[partition] = message.offset + 1
                            self.read += 1
                    except Exception as error:
                        self.errors.append(f"read: {error!r}")
                    time.sleep(PAUSE_S)


def restarted(cluster: Cluster, directory: Path, times: int, *chosen: int) -> None:
    """Restart these brokers, or all, so often, with the command line, while clients send and read."""
    options = [option for broker in chosen for option in ("--broker", str(broker))]
    create_topic(cluster.urls[0], "orders", PARTITIONS)
    orders = directory / "orders"
    orders.mkdir()
    with Load(cluster) as load:
        for _ in range(times):
            restart = ("restart", *options, "--command", f"touch {orders}/{{broker}}")
            process = command(cluster, "cluster", *restart)
            carried_out: list[str] = []

            def has_ended(process: Popen[bytes] = process, carried_out: list[str] = carried_out) -> bool:
                for order in orders.iterdir():
                    assert cluster.stop(int(order.name)) == 0
                    cluster.start(int(order.name))
                    order.unlink()
                    carried_out.append(order.name)
                return process.poll() is not None

            eventually(has_ended, what="the command ends", progress=partial(len, carried_out))
            _, notes = process.communicate()
            assert process.returncode == 0, notes.decode()
            assert notes.decode().count("is back and in sync") == len(chosen or cluster.brokers)
    assert load.errors == []
    for partition in range(PARTITIONS):
        values = [value for _, value in read_all(cluster.urls[0], "orders", partition)]
        assert values == load.sent[partition]
    assert load.read > 0
    print(f"{sum(map(len, load.sent))} sent, {load.read} read, slowest send {load.slowest_s:.2f} s")


def test_brokers_are_restarted_and_no_client_sees_an_error(directory: Path) -> None:
    with Cluster(directory / "cluster", brokers=3) as cluster:
        restarted(cluster, directory, 1, 1, 2)
        with Client(cluster.bootstrap) as client:
            eventually(
                lambda: not any(broker.draining for broker in client.brokers.list()),
                what="a broker that knows that none is drained",
            )


@pytest.mark.slow
def test_five_brokers_are_restarted_ten_times_and_no_client_sees_an_error(directory: Path) -> None:
    with Cluster(directory / "cluster", brokers=5) as cluster:
        restarted(cluster, directory, 10)
