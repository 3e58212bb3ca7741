"""A broker is removed for good: refused while it is in use, safe to repeat, and its process is kept out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from partitions.metadata.features import NEWEST
from raftlog import Client
from raftlog.errors import BrokerNotFound, RaftlogError
from raftlog.testing.waits import LIMIT_S
from tests.helpers.command_line import run
from tests.helpers.real_cluster import call, eventually

pytestmark = pytest.mark.e2e


def is_down(client: Client, broker: int) -> bool:
    """Whether the metadata say so; False while the controller moves."""
    try:
        return not client.brokers.describe(broker).alive
    except RaftlogError:
        return False


def are_three(client: Client) -> bool:
    """Whether the metadata of the client's broker have only those that stay."""
    return [one.broker_id for one in client.brokers.list()] == [1, 2, 3]


def ready_status(url: str) -> int:
    """Of a broker; 0 while it does not listen."""
    try:
        return call(url, "GET", "/healthz/ready").status
    except OSError:
        return 0


# requirement: F3
def test_a_decommissioned_broker_is_removed_and_its_process_is_refused(directory: Path) -> None:
    with (
        Cluster(directory, brokers=4) as four,
        Client(four.urls[:3], retry_timeout=f"{LIMIT_S:g}s") as client,
    ):
        eventually(
            lambda: client.cluster.describe().feature_level == NEWEST,
            what="the newest feature level",
        )
        _, notes = run(four, "broker", "forget", "4", code=1)
        assert "broker 4 is alive" in notes
        assert "raftlog broker decommission 4" in notes
        assert client.brokers.decommission(4, wait=f"{LIMIT_S:g}s").replicas == 0
        four.stop(4)
        eventually(lambda: is_down(client, 4), what="broker 4 is down")
        output, notes = run(four, "broker", "forget", "4", "-o", "json")
        assert json.loads(output)["broker_id"] == 4
        assert "broker 4 was removed permanently" in notes
        assert client.brokers.forget(4).broker_id == 4, "a repeated request is answered alike"
        eventually(lambda: are_three(client), what="three brokers")
        with pytest.raises(BrokerNotFound, match="was removed permanently"):
            client.brokers.recommission(4)

        four.launch(4)
        eventually(
            lambda: "it was removed from the cluster permanently" in four.log_text(4),
            what="the reason in the log of broker 4",
        )
        eventually(lambda: ready_status(four.urls[3]) == 503, what="broker 4 is not ready")
        eventually(lambda: are_three(client), what="three brokers, as before")
        four.kill(4)
