"""What ``raftlog cluster health`` says about replicas that can or cannot be restored on other brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from api.cli.health import Health
from raftlog.wire.bodies import (
    BrokerHealth,
    BrokerState,
    PartitionDescription,
    Reassignment,
    RefusedReplica,
)
from tests.helpers.async_tests import beside
from tests.helpers.command_line import invoke
from tests.helpers.http_server import HttpServer, serve


def partition(
    replicas: list[int], in_sync: list[int], target: list[int] | None = None
) -> PartitionDescription:
    return PartitionDescription(
        partition=0,
        leader=in_sync[0] if in_sync else None,
        leader_epoch=1,
        replicas=replicas,
        learners=[],
        in_sync=in_sync,
        commit_index=0,
        log_start_offset=0,
        high_watermark=0,
        log_end_offset=0,
        size_bytes=0,
        reassignment=None
        if target is None
        else Reassignment(target=target, state="learning", caught_up_percent=None),
    )


def examined(one: PartitionDescription, *, down: Iterable[int], spare: Iterable[int]) -> Health:
    found = Health([], list(down), spare=frozenset(spare))
    found.add("orders", one)
    return found


# requirement: F1
def test_without_a_controller_brokers_that_do_not_answer_count_as_down() -> None:
    found = Health([], [3], spare=frozenset({1, 2}), silent=frozenset({2, 3}))
    found.add("orders", partition([1, 2, 3], []))
    assert found.problems == [
        "orders/0 has no leader; without a majority it cannot be restored: start broker 2, 3"
    ]
    led = Health([], [], spare=frozenset({1, 2, 3}), silent=frozenset({2, 3}))
    led.add("orders", partition([1, 2, 3], [1, 2, 3]))
    assert led.problems == [], "others reach them"


# requirement: F1
@pytest.mark.parametrize(
    ("one", "down", "spare", "told"),
    [
        pytest.param(
            partition([1, 2, 3], []),
            [2, 3],
            [1, 4, 5],
            "orders/0 has no leader; without a majority it cannot be restored: start broker 2, 3",
            id="two of three brokers are down",
        ),
        pytest.param(
            partition([1, 2, 3], [1, 2]),
            [3],
            [1, 2],
            "orders/0 is under-replicated: not in sync on broker 3; no other broker can take the replica: "
            "start broker 3",
            id="no other broker is left",
        ),
        pytest.param(
            partition([1, 2, 3, 4, 5], [1, 2, 3]),
            [4, 5],
            [1, 2, 3, 6],
            "orders/0 is under-replicated: not in sync on broker 4, 5; no other broker can take the replica: "
            "start broker 4, 5",
            id="one other broker for two replicas",
        ),
    ],
)
def test_says_why_replicas_cannot_be_restored(
    one: PartitionDescription, down: list[int], spare: list[int], told: str
) -> None:
    found = examined(one, down=down, spare=spare)
    assert found.problems == [told]
    assert found.not_restorable == ["orders/0"]
    assert found.as_json()["not_restorable"] == ["orders/0"]


@pytest.mark.parametrize(
    ("one", "down"),
    [
        pytest.param(partition([1, 2, 3], [1, 2]), [3], id="another broker can take it"),
        pytest.param(partition([1, 2, 3], [1, 2], [1, 2, 4]), [3], id="a move has begun"),
        pytest.param(partition([1, 2, 3], [1, 2]), [], id="the replica is only behind"),
        pytest.param(partition([1, 2, 3], [1, 2, 3]), [5], id="another broker is down"),
    ],
)
def test_restorable_replicas_have_no_obstacle(one: PartitionDescription, down: list[int]) -> None:
    found = examined(one, down=down, spare=[1, 2, 4])
    assert found.not_restorable == []
    assert not any("restored" in problem or "can take" in problem for problem in found.problems)


# requirement: F1
def test_names_brokers_that_do_not_open_new_replicas_once() -> None:
    found = Health([], [])
    found.add_refused(
        RefusedReplica(broker, "orders", partition, "no room")
        for broker, partition in ((4, 0), (4, 1), (5, 2))
    )
    assert found.refused == ["orders/0 on broker 4", "orders/1 on broker 4", "orders/2 on broker 5"]
    assert found.problems == [
        "broker 4 cannot open new replicas and gets no others at the moment: orders/0: no room",
        "broker 5 cannot open new replicas and gets no others at the moment: orders/2: no room",
    ]


def test_names_what_users_cannot_do_at_a_broker() -> None:
    found = Health([], [])
    room = BrokerState(True, 500_000_000, 1_000_000_000, 0)
    found.add_broker(1, "http://one", BrokerHealth("ok", {}, room))
    found.add_broker(2, "http://two", BrokerHealth("ok", {"controller": True}))
    assert found.is_healthy
    found.add_broker(3, "http://three", BrokerHealth("ok", {}, replace(room, takes_records=False)))
    found.add_broker(4, "http://four", None)
    failed = replace(room, failed_replicas=1)
    found.add_broker(5, "http://five", BrokerHealth("unavailable", {"controller": False}, failed))
    assert found.as_json()["brokers_without_room"] == [3]
    assert found.problems == [
        "broker 3 has no room and takes no records: 500000000 bytes of its disk are free, 1000000000 are "
        "reserved; add space, delete topics or records, or lower a retention",
        "broker 4 is alive but does not answer at http://four",
        "broker 5 is not ready: controller",
        "broker 5 has 1 closed replica; its log says why",
    ]


# requirement: F2
@pytest.mark.parametrize(
    ("one", "in_use", "missing"),
    [
        (partition([1], [1]), 3, 2),
        (partition([1, 2], [1, 2]), 4, 1),
        (partition([1], [1]), 2, 0),
        (partition([1], [1], target=[1, 2, 3]), 3, 0),
        (partition([1, 2, 3], [1, 2, 3]), 3, 0),
    ],
)
def test_internal_topics_that_wait_for_replicas_are_named(
    one: PartitionDescription, in_use: int, missing: int
) -> None:
    found = Health([], [], spare=frozenset({1, 2, 3, 4}), in_use=in_use)
    found.add("orders", one)
    assert found.problems == []
    found.add("__offsets", one, is_internal=True)
    assert found.as_json()["awaiting_replicas"] == (["__offsets/0"] if missing else [])
    assert [f"waits for {missing} more" in each for each in found.problems] == ([True] if missing else [])


# requirement: F2
def test_the_command_names_internal_topics_that_were_created_on_one_broker() -> None:
    @asynccontextmanager
    async def grown() -> AsyncIterator[HttpServer]:
        async with serve() as server:
            for name, count in (("__offsets", 1), ("__delayed", 3)):
                await server.cluster.controller.create_topic(
                    name, partitions=1, replication_factor=count, config={}, timeout_ms=100, internal=True
                )
            yield server

    with beside(grown()) as server:
        told = invoke(server.url, "cluster", "health", code=1).stderr
    assert "__offsets/0 has 1 replica and waits for 2 more" in told
    assert "__delayed/0 has" not in told
