"""Which of the named brokers a command uses."""

from __future__ import annotations

import pytest

from api.cli import connection, reading
from tests.helpers.async_tests import beside
from tests.helpers.command_line import invoke
from tests.helpers.fake_broker import fake_cluster
from tests.helpers.no_brokers import frozen_broker


@pytest.mark.parametrize("frozen_count", [1, 2])
def test_frozen_brokers_that_are_named_first_do_not_stop_a_command(
    frozen_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PROBE_TIMEOUT", "400ms")
    monkeypatch.setattr(reading, "SILENCE_S", 0.3)
    with beside(frozen_broker()) as one, beside(frozen_broker()) as other, beside(fake_cluster()) as cluster:
        named = ",".join([*[one, other][:frozen_count], *cluster.urls])
        assert "orders" in invoke(named, "topic", "list").output
