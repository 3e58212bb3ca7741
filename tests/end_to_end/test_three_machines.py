"""A cluster on three machines: three loopback addresses, and three folders of which each is used alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.ports import free_ports
from raftlog.__main__ import COMMAND
from tests.helpers.real_cluster import call, create_topic, eventually, produce_surely, read_all

pytestmark = pytest.mark.e2e

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


@pytest.fixture
def machines(directory: Path) -> Iterator[list[Cluster]]:
    """One cluster of three brokers that run; every machine has nothing but its own folder."""
    made, port = directory / "made", free_ports(1)
    command = [
        *COMMAND,
        "cluster",
        "init",
        "--data",
        made,
        "--http-port",
        str(port),
    ]
    subprocess.run([*command, *(word for host in HOSTS for word in ("--host", host))], check=True)
    with ExitStack() as stack:
        found = []
        for broker in (1, 2, 3):
            machine = directory / f"machine-{broker}"
            machine.mkdir()
            (made / f"broker-{broker}").rename(machine / f"broker-{broker}")
            found.append(Cluster(machine))
            stack.push(found[-1])  # to stop it: the first start waits for all three
            found[-1].launch(broker)
        for broker, cluster in enumerate(found, 1):
            cluster.wait_ready(broker)
        yield found


def test_folders_that_are_copied_to_their_machines_make_one_cluster(machines: list[Cluster]) -> None:
    urls = [machine.bootstrap for machine in machines]
    create_topic(urls[0], "orders", 3)
    for number, url in enumerate(urls):
        produce_surely([url], "orders", [f"from {number}"])
    for url in urls:
        assert [value for _, value in read_all(url, "orders")] == ["from 0", "from 1", "from 2"]
        eventually(partial(shows_all, url, urls), what=f"all brokers at {url}")


def test_two_machines_go_on_and_the_third_comes_back_by_another_name(machines: list[Cluster]) -> None:
    urls = [machine.bootstrap for machine in machines]
    create_topic(urls[0], "orders")
    machines[2].kill(3)
    produce_surely(urls[:2], "orders", ["without the third"])
    for url in urls[:2]:
        eventually(partial(is_ready, url), what="two brokers that go on")
        eventually(partial(has_lost_the_third, url), what="a dead broker")
    machines[2].launch(3, environment={"RAFTLOG_BROKER__HTTP__ADVERTISED_URL": "http://log3.example:7070"})
    machines[2].wait_ready(3)
    assert [value for _, value in read_all(urls[2], "orders")] == ["without the third"]
    for url in urls:
        eventually(partial(answers_to, url, "log3.example:7070"), what="the new name")


def shows_all(url: str, urls: list[str]) -> bool:
    """Whether a broker knows all addresses, and sees that all brokers live."""
    shown = call(url, "GET", "/v1/brokers").rows("items")
    return [(broker["http"], broker["alive"]) for broker in shown] == [(each, True) for each in urls]


def is_ready(url: str) -> bool:
    """Whether a broker can serve."""
    return call(url, "GET", "/healthz/ready").status == 200


def has_lost_the_third(url: str) -> bool:
    """Whether a broker sees that the other one lives, and the third does not."""
    brokers = call(url, "GET", "/v1/brokers").rows("items")
    return [broker["alive"] for broker in brokers] == [True, True, False]


def answers_to(url: str, name: str) -> bool:
    """Whether a broker lets clients address it by this name."""
    return call(url, "GET", "/v1/cluster", headers={"Host": name}).status == 200
