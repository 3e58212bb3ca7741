"""Feature levels: what is in force, who is refused, and what older releases read."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from partitions.metadata.commands import SetClusterId, SetFeatureLevel
from partitions.metadata.features import NEWEST
from partitions.metadata.image import MetadataImage
from partitions.metadata.machine import decode_image, encode_image
from partitions.metadata.planner import PlannerLimits, plan
from raftlog.errors import InvalidRequest, InvariantViolated
from tests.helpers.metadata_images import applied, cluster, register


def at_level(level: int) -> MetadataImage:
    return applied(SetClusterId("c", "b", level), to=cluster())[0]


def test_a_level_rises_and_never_falls() -> None:
    image, _ = applied(SetFeatureLevel(2), to=at_level(1))
    assert image.feature_level == 2
    after, _ = applied(SetFeatureLevel(1), to=image)
    assert after is image


def test_a_broker_below_the_level_is_refused_with_the_remedy() -> None:
    old = register(4)
    assert old.feature_level == 1, "a release without levels names none"
    assert plan(old, at_level(1), PlannerLimits()) == old
    with pytest.raises(InvalidRequest, match="broker 4 has feature level 1, and the cluster has 2: install"):
        plan(old, at_level(2), PlannerLimits())
    new = structs.replace(old, feature_level=2)
    assert plan(new, at_level(2), PlannerLimits()) == new


def test_the_snapshot_has_the_level_as_its_format() -> None:
    assert msgspec.msgpack.decode(encode_image(at_level(1)))[0] == 1, "the release before reads it"
    assert msgspec.msgpack.decode(encode_image(at_level(2)))[0] == 2, "the release before refuses it"
    assert decode_image(encode_image(at_level(2))).feature_level == 2


def test_a_snapshot_of_a_later_release_is_refused() -> None:
    fields = msgspec.msgpack.decode(encode_image(at_level(NEWEST)))
    fields[0] = NEWEST + 1
    with pytest.raises(InvariantViolated, match="install the release that wrote it"):
        decode_image(msgspec.msgpack.encode(fields))
