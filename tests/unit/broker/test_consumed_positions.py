"""What holds back the segments of a topic that names its groups, and which names a topic takes."""

# requirement: A11

from __future__ import annotations

import pytest

from broker.consumed_positions import slowest_of
from partitions.metadata import topic_config
from partitions.values import Consumed
from raftlog.errors import InvalidRequest
from raftlog.types import Offset
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import whole_broker


def test_the_slowest_group_holds_a_partition_back() -> None:
    groups = {"mail": Offset(7), "audit": Offset(5), "web": Offset(9)}
    assert slowest_of(groups) == Consumed(Offset(5), "audit", ("mail", "audit", "web"))
    assert slowest_of({"mail": Offset(7), "audit": None}) == Consumed(Offset(0), "audit", ("mail", "audit"))


async def test_what_other_groups_have_consumed_does_not_count_for_those_named_now() -> None:
    config = {"segment.bytes": 1024, "retention.consumed.by": "mail"}
    async with whole_broker() as whole, VirtualClient(whole.url) as client:
        broker = whole.broker

        async def shown() -> tuple[int, int, str]:
            (found,) = await client.topics.partitions("jobs")
            return found.log_start_offset, found.consumed_up_to, found.held_back_by

        await client.topics.create("jobs", partitions=1, replication_factor=1, config=config)
        async with client.producer("jobs") as producer:
            for _ in range(10):
                await producer.send(b"x" * 1000, partition=0)
                await producer.flush()
        await client.groups.commit("mail", {("jobs", 0): 10})
        await broker._consumed_positions().look()
        assert await shown() == (0, 10, "mail")
        await client.topics.alter("jobs", config={"retention.consumed.by": "audit,mail"})
        await broker.retention.look()
        assert await shown() == (0, 0, "audit")
        await client.topics.alter("jobs", config={"retention.consumed.by": "mail"})
        await broker.retention.look()
        assert (await shown())[0] > 0  # there was something to delete


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("", ()),
        (" mail , audit,mail", ("audit", "mail")),
        (",".join("abcdefghijklmnop"), tuple("abcdefghijklmnop")),
    ],
)
def test_a_topic_names_its_groups(value: str, names: tuple[str, ...]) -> None:
    checked = topic_config.check({"retention.consumed.by": value}, replication_factor=3)
    assert topic_config.consumers(topic_config.complete({k: v for k, v in checked.items() if v}, 3)) == names


@pytest.mark.parametrize(
    "value", ["a,,b", "a b", "x" * 250, ",".join(map(str, range(17))), 5, True, "mail\n,a/b"]
)
def test_names_that_are_none_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"retention\.consumed\.by"):
        topic_config.check({"retention.consumed.by": value}, replication_factor=3)
