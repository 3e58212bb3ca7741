"""The conversations of ``docs/consumer-groups.md``: three brokers answer what the page shows."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog.testing.waits import LIMIT_S, eventually
from tests.helpers.real_cluster import RETRYABLE, Answer, call, create_topic

pytestmark = pytest.mark.e2e

DOCUMENT = Path(__file__).parents[2] / "docs" / "consumer-groups.md"
LINE = re.compile(r"^([A-Z])([<>]) (.*)$")
ASKS_MAX = 12  # heartbeats of five seconds until a dead member is noticed


def lines() -> Iterator[tuple[str, str, str]]:
    """Member, direction and the rest of each line."""
    for block in re.findall(r"^```text\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            found = LINE.match(line)
            assert found is not None, line
            yield found[1], found[2], found[3]


def asks_again(shown: str, answer: Answer) -> bool:
    """Whether a client asks again, as the page says: a rebalance is not over, or has not begun yet."""
    wanted = json.loads(shown).get("action") if shown.startswith("{") else None
    return wanted is not None and {wanted, answer.json.get("action")} == {"continue", "rejoin"}


def ask(urls: Iterator[str], method: str, path: str, body: object) -> Answer:
    """The answer to a request that is repeated, as clients do, while it is refused for a time."""

    def answered() -> Answer | None:
        answer = call(next(urls), method, path, body)
        return None if answer.status in RETRYABLE else answer

    return eventually(answered, what="an answer of a leader")


# requirement: G8 G9 G10 G13
def test_the_documented_conversations_are_what_brokers_say(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "orders", 3)
    create_topic(cluster.urls[0], "letters", 1)
    urls = itertools.cycle(cluster.urls)
    waiting: dict[str, Future[Answer]] = {}
    asked: dict[str, tuple[str, str, object]] = {}
    with ThreadPoolExecutor(4) as pool:
        for member, direction, rest in lines():
            if direction == ">":
                method, path, *body = rest.split(" ", 2)
                asked[member] = method, path, json.loads(body[0]) if body else None
                waiting[member] = pool.submit(ask, urls, *asked[member])
                continue
            status, _, shown = rest.partition(" ")
            answer = waiting.pop(member).result(timeout=2 * LIMIT_S)
            for _ in range(ASKS_MAX):
                if not asks_again(shown, answer):
                    break
                answer = ask(urls, *asked[member])
            assert answer.status == int(status), (member, rest, answer)
            if shown.startswith("{"):
                assert answer.json == json.loads(shown), (member, rest)
            elif shown:
                assert answer.json["code"] == shown
    assert not waiting
