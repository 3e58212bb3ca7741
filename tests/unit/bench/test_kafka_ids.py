"""Ids of Kafka clusters are arguments of Kafka's tool."""

from __future__ import annotations

from bench.kafka import new_cluster_id


def test_an_id_is_never_taken_for_an_option() -> None:
    ids = {new_cluster_id() for _ in range(2_000)}
    assert len(ids) == 2_000
    assert {len(each) for each in ids} == {22}
    assert not [each for each in ids if each.startswith("-")]
