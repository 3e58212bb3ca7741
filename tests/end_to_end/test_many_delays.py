"""A hundred thousand delayed messages over three brokers, of which one is killed every ten seconds."""

from __future__ import annotations

import http.client
import random
import threading
import time
from bisect import bisect_left
from collections import Counter

import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import call, create_topic, eventually, partitions_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]

MESSAGES = 100_000
PARTITIONS = 6
OF_A_REQUEST = 500
SOON_S, SPREAD_S = 5, 90  # a message is due so long after it is sent
KILL_EVERY_S = 10
KILLS = 8
BOUNDS_MS = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000)


class Sender:
    """Sends all messages in the background; a request whose outcome is unknown is not repeated."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = random.Random(20)
        self.due: dict[str, int] = {}
        self.unknown: set[str] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        rng = self._rng
        for first in range(0, MESSAGES, OF_A_REQUEST):
            from_ms = time.time_ns() // 1_000_000 + SOON_S * 1_000
            at_ms = {
                f"m{number}": from_ms + rng.randrange(SPREAD_S * 1_000)
                for number in range(first, first + OF_A_REQUEST)
            }
            records = [{"key": name, "value": name, "deliver_at": when} for name, when in at_ms.items()]
            while True:
                url = rng.choice(self._cluster.urls)
                try:
                    answer = call(url, "POST", "/v1/topics/orders/records", {"records": records})
                except ConnectionRefusedError:  # it is dead
                    continue
                except (OSError, http.client.HTTPException):
                    self.unknown |= set(at_ms)
                    break
                if answer.status == 200:
                    self.due |= at_ms
                    break
                if answer.status == 0 or answer.json.get("code") not in (
                    "no_leader",
                    "overloaded",
                    "draining",
                ):
                    self.unknown |= set(at_ms)  # perhaps accepted
                    break
                time.sleep(0.2)  # before the request is repeated

    @property
    def is_over(self) -> bool:
        """Whether all are sent."""
        return not self._thread.is_alive()


def arrived(url: str, partition: int) -> list[tuple[str, int]]:
    """Value and append time of each record of a partition."""
    found: list[tuple[str, int]] = []
    offset = 0
    while True:
        path = f"/v1/topics/orders/partitions/{partition}/records?offset={offset}&limit=10000"
        answer = call(url, "GET", path, timeout_s=60)
        if answer.status == 204:
            return found
        if answer.status != 200:
            time.sleep(0.2)  # before the request is repeated
            continue
        found += ((str(row["value"]), int(str(row["timestamp"]))) for row in answer.rows())
        offset = int(str(answer.json["next_offset"]))


def everything(cluster: Cluster) -> list[tuple[str, int]]:
    """All that is in the topic."""
    return [one for partition in range(PARTITIONS) for one in arrived(cluster.urls[0], partition)]


def pending(cluster: Cluster) -> bool:
    """Whether some message is not in its topic."""
    answer = call(cluster.urls[0], "GET", "/v1/delayed?limit=1")
    return answer.status != 200 or bool(answer.rows("items"))


# requirement: A3
def test_a_hundred_thousand_messages_arrive_once_and_none_early(cluster: Cluster) -> None:
    rng = random.Random(7)
    create_topic(cluster.urls[0], "orders", PARTITIONS)
    begun_s = time.time()
    sender = Sender(cluster)
    kills, sent_s = 0, 0.0
    while not sent_s or time.time() < sent_s + SOON_S + SPREAD_S or kills < KILLS:
        sent_s = sent_s or (time.time() if sender.is_over else 0.0)
        time.sleep(KILL_EVERY_S - 2)  # between two kills
        victim = rng.choice(cluster.running)
        cluster.kill(victim)
        kills += 1
        time.sleep(2)  # while the broker is down
        cluster.start(victim)
    eventually(
        lambda: not pending(cluster),
        what="none pending",
        progress=lambda: [row["high_watermark"] for row in partitions_of(cluster.urls[0], "orders")],
    )
    ended_s = time.time() - begun_s
    found = everything(cluster)
    names = Counter(name for name, _ in found)
    due, unknown = sender.due, sender.unknown
    late = sorted(at_ms - due[name] for name, at_ms in found if name in due)
    classes = Counter(bisect_left(BOUNDS_MS, one) for one in late)
    print(
        f"{len(due)} accepted, {len(unknown)} unknown, {len(found)} delivered, {kills} kills, {ended_s:.0f} s"
    )
    for place, bound in enumerate([*BOUNDS_MS, "more"]):
        print(f"  <= {bound} ms: {classes[place]}")
    print(f"  p50 {late[len(late) // 2]}, p99 {late[len(late) * 99 // 100]}, max {late[-1]} ms")
    assert len(due) > MESSAGES / 2
    assert kills >= KILLS
    assert not [name for name, count in names.items() if count > 1]
    assert set(due) <= set(names) <= set(due) | unknown
    assert late[0] >= 0
