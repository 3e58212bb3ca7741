"""``raftlog consume --group``: commands that share a topic, are stopped, and go on where they were."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from tests.helpers.command_line import command, run
from tests.helpers.real_cluster import create_topic

pytestmark = pytest.mark.e2e


def filled(cluster: Cluster, topic: str, count: int) -> None:
    create_topic(cluster.urls[0], topic, 3)
    with Client(",".join(cluster.urls)) as client, client.producer(topic) as producer:
        for number in range(count):
            producer.send(str(number), partition=number % 3)


def printed(cluster: Cluster, *arguments: str) -> list[int]:
    output, _ = run(cluster, "consume", *arguments)
    return sorted(map(int, output.split()))


# requirement: G3 C5 D2
def test_commands_of_a_group_continue_where_the_last_one_ended(unbroken: Cluster) -> None:
    filled(unbroken, "lines", 300)
    first = printed(unbroken, "lines", "--group", "readers", "--max", "100")
    rest = printed(unbroken, "lines", "--group", "readers")
    assert sorted(first + rest) == list(range(300))
    assert printed(unbroken, "lines", "-g", "readers") == []
    assert printed(unbroken, "lines", "-g", "late", "--from", "latest") == []
    assert printed(unbroken, "lines", "-g", "others") == list(range(300))


# requirement: G3 D2
def test_commands_that_are_stopped_lose_nothing_and_share_the_rest(unbroken: Cluster) -> None:
    filled(unbroken, "shared-lines", 3000)
    seen: list[int] = []
    with command(unbroken, "consume", "shared-lines", "--group", "crew", "--follow") as stopped:
        assert stopped.stdout is not None
        for line in stopped.stdout:
            seen.append(int(line))
            if len(seen) == 1000:
                stopped.send_signal(signal.SIGTERM)
    assert stopped.returncode == 0
    others = [command(unbroken, "consume", "shared-lines", "--group", "crew") for _ in range(3)]
    for other in others:
        output, errors = other.communicate(timeout=90)
        assert other.returncode == 0, errors.decode()
        seen += map(int, output.split())
    assert set(seen) == set(range(3000))
    assert Counter(seen).total() < 3500, "nearly all of them once"


@pytest.mark.parametrize(
    "option", [("--from", "7"), ("--to", "9"), ("--partition", "0"), ("--skip-undecodable",)], ids=str
)
def test_options_of_partitions_are_refused_with_a_group(unbroken: Cluster, option: tuple[str, ...]) -> None:
    _, errors = run(unbroken, "consume", "any", "--group", "g", *option, code=2)
    assert f"{option[0]}" in errors
    assert "--group" in errors


def test_an_unknown_topic_is_an_error_and_no_member(unbroken: Cluster) -> None:
    _, errors = run(unbroken, "consume", "nothing-here", "--group", "g", code=1)
    assert "nothing-here" in errors
