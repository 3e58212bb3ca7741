"""A cluster that somebody else started: its processes cannot be killed, but its leaders can be moved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from chaos.cluster_view import ClusterFailed, ClusterView
from chaos.http_get import http_get
from raftlog.wire import bodies, brokers

TIMEOUT_S: Final = 10


class RemoteCluster(ClusterView):
    """The brokers of a running cluster, found at any of these URLs. Raises ``ClusterFailed``."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._entrances = [url.rstrip("/") for url in urls]
        super().__init__({row.broker_id: row.http for row in self._rows()})
        if not self.brokers:
            raise ClusterFailed(f"the cluster at {urls[0]} has no brokers yet")

    @property
    def running(self) -> list[int]:
        """Ids of the brokers that the cluster sees alive."""
        return sorted(row.broker_id for row in self._rows() if row.alive)

    def _rows(self) -> list[bodies.BrokerDescription]:
        failure: Exception | None = None
        for url in self._entrances:
            try:
                items = json.loads(http_get(f"{url}{brokers.LIST.path}?limit=1000", TIMEOUT_S)[0])["items"]
                return msgspec.convert(items, list[bodies.BrokerDescription])
            except (OSError, ValueError, KeyError) as error:
                failure = error
        raise ClusterFailed(
            f"no broker responds at {', '.join(self._entrances)} ({failure}); --cluster takes URLs of brokers"
        )
