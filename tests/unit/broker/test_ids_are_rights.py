"""Ids that are a right, such as those of leases and delayed messages, cannot be foretold from others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from api import server
from broker.broker import BrokerEnvironment
from broker.process.descriptors import Descriptors
from broker.settings import BrokerSettings, Peer
from raftlog.storage.log_storage import DiskWork
from raftlog.testing.syncs import in_a_task


async def no_syncs(syncs: Sequence[DiskWork]) -> list[OSError | None]:
    """Nothing is written."""
    return [None for _ in syncs]


def environment() -> BrokerEnvironment:
    """The environment in which ``raftlog serve`` runs a broker."""
    here = Path("unused")
    settings = BrokerSettings(
        broker_id=1, cluster_id="0" * 32, secret_file=here, data_directory=here, peers={1: Peer(port=1)}
    )
    descriptors = Descriptors(1024, 100, 100)
    return server._environment(settings, b"s" * 32, descriptors, in_a_task(no_syncs), lambda: None)


async def test_ids_of_a_broker_come_from_the_kernel() -> None:
    # requirement: N2
    rng = environment().rng
    assert isinstance(rng, random.SystemRandom)  # a generator with a state is foretold from 624 outputs
    with pytest.raises(NotImplementedError):
        rng.getstate()
