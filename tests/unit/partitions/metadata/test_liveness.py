"""Who counts as alive, by when each was last heard."""

from __future__ import annotations

from collections.abc import Mapping

from partitions.metadata.commands import FenceBroker, UnfenceBroker
from partitions.metadata.image import MetadataImage
from partitions.metadata.liveness import decide
from raftlog.types import NodeId
from tests.helpers.metadata_images import applied, cluster


def decided(
    heard: Mapping[int, float], *, now: float, since: float = 0.0, image: MetadataImage | None = None
) -> list[FenceBroker | UnfenceBroker]:
    return decide(
        image or cluster(),
        {NodeId(broker): at for broker, at in heard.items()},
        now_ms=now,
        leading_since_ms=since,
        dead_timeout_ms=100,
    )


# requirement: ST4
def test_a_broker_is_fenced_once_it_was_silent_for_the_whole_time() -> None:
    heard = {1: 1000.0, 2: 900.0, 3: 901.0}
    assert decided(heard, now=999) == []
    assert decided(heard, now=1000) == [FenceBroker(NodeId(2), "first")]
    assert decided(heard, now=1001) == [FenceBroker(NodeId(2), "first"), FenceBroker(NodeId(3), "first")]


def test_a_new_controller_gives_everybody_the_whole_time() -> None:
    assert decided({}, now=1099, since=1000) == []
    assert decided({1: 10.0}, now=1099, since=1000) == []
    assert len(decided({1: 10.0}, now=1100, since=1000)) == 3


def test_a_fenced_broker_is_taken_back_when_it_is_heard_again() -> None:
    image, _ = applied(FenceBroker(NodeId(2), "first"), to=cluster())
    heard = {1: 1000.0, 2: 850.0, 3: 1000.0}
    assert decided(heard, now=1000, image=image) == []
    assert decided({**heard, 2: 990.0}, now=1000, image=image) == [UnfenceBroker(NodeId(2), "first")]


def test_what_was_heard_before_this_controller_led_takes_nobody_back() -> None:
    image, _ = applied(FenceBroker(NodeId(2), "first"), to=cluster())
    heard = {1: 1000.0, 2: 990.0, 3: 1000.0}
    assert decided(heard, now=1000, since=995, image=image) == []
