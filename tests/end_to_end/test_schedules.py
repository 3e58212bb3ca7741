"""Schedules on real brokers: one message for each instant, while the leader of their partition is killed."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from raftlog.testing.kit import RaftlogCluster
from tests.helpers.real_cluster import surely

pytestmark = pytest.mark.e2e

MINUTES = 6


# requirement: A5
def test_each_minute_has_one_message_while_coordinators_are_killed(raftlog_cluster: RaftlogCluster) -> None:
    cluster, rng = raftlog_cluster, random.Random(4)
    topic = cluster.topic()
    urls = [cluster.url_of(number) for number in cluster.brokers]
    body = {"schedule_id": "each-minute", "topic": topic, "cron": "* * * * *", "record": {"value": "tick"}}
    body["missed"] = "all"  # a coordinator may be killed for longer than a minute of this clock
    made = surely(urls, "POST", "/v1/schedules", body, rng)
    assert made.status == 201, made
    begun_ms = int(str(made.json["created_at"]))

    def fired() -> list[int]:
        headers = [dict(message.headers) for message in cluster.read_all(topic)]
        return sorted(int(one["raftlog.scheduled_at"] or 0) for one in headers)

    def wait_for(instants: int) -> None:
        cluster.wait_until(lambda: len(set(fired())) >= instants, what=f"messages of {instants} instants")

    for minute in range(MINUTES):
        victim = cluster.kill_leader("__delayed", rng.randrange(16)) if minute % 2 else None
        cluster.clock.advance("1m")
        wait_for(minute + 1)  # before the broker is back
        if victim is not None:
            cluster.start(victim)
    cluster.clock.advance("1m")
    wait_for(MINUTES + 1)  # a second message of an instant would be before that of the last one
    instants = fired()
    assert len(instants) == len(set(instants))
    assert instants[0] > begun_ms
    assert {later - earlier for earlier, later in pairwise(instants)} == {60_000}
    path = "/v1/schedules/each-minute"
    assert surely(urls, "DELETE", path, None, rng).status in (204, 404)  # the latter when it was repeated
    assert surely(urls, "GET", path, None, rng).status == 404
