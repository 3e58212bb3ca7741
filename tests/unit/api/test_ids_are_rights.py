"""Ids that are a right, such as those of leases and delayed messages, cannot be foretold from others."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from api import server
from api.broker import BrokerEnvironment
from api.descriptors import Descriptors
from api.settings import load_settings
from tests.unit.api.test_settings import settings_file


def environment_of(folder: Path) -> BrokerEnvironment:
    """The environment in which ``raftlog serve`` runs a broker."""
    settings = load_settings(settings_file(folder, ""))
    return server._environment(settings, b"s" * 32, Descriptors(1024, 100, 100), lambda: None)


async def test_ids_of_a_broker_come_from_the_kernel(tmp_path: Path) -> None:
    # requirement: N2
    rng = environment_of(tmp_path).rng
    assert isinstance(rng, random.SystemRandom)  # a generator with a state is foretold from 624 outputs
    with pytest.raises(NotImplementedError):
        rng.getstate()
