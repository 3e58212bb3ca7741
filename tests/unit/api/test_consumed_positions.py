"""What holds back the segments of a topic that names its groups, and which names a topic takes."""

# requirement: A11

from __future__ import annotations

import pytest

from api.consumed_positions import slowest_of
from partitions.metadata import topic_config
from partitions.values import Consumed
from raftlog.errors import InvalidRequest
from raftlog.types import Offset


def test_the_slowest_group_holds_a_partition_back() -> None:
    assert slowest_of({"mail": Offset(7), "audit": Offset(5), "web": Offset(9)}) == Consumed(
        Offset(5), "audit"
    )
    assert slowest_of({"mail": Offset(7), "audit": None}) == Consumed(Offset(0), "audit")


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
