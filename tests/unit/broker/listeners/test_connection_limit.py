"""The limit of connections decides whether a client may open another connection, of any protocol."""

from __future__ import annotations

from broker.listeners.connection_limit import ConnectionLimit
from raftlog.errors import Overloaded, QuotaExceeded
from tests.helpers.line_protocol import CountedConnections


async def test_an_address_leaves_connections_to_others() -> None:
    limit = ConnectionLimit("HTTP", 6, 2, CountedConnections())
    for _ in range(2):
        limit.opened("10.0.0.1")
    assert isinstance(limit.refusal("10.0.0.1"), QuotaExceeded)
    assert limit.refusal("10.0.0.2") is None
    limit.closed("10.0.0.1")
    assert limit.refusal("10.0.0.1") is None
    for _ in range(5):
        limit.opened("10.0.0.3")
    assert isinstance(limit.refusal("10.0.0.2"), Overloaded)


# requirement: N2
async def test_addresses_of_an_ipv6_network_share_their_connections() -> None:
    limit = ConnectionLimit("HTTP", 6, 2, CountedConnections())
    for address in ("2001:db8::1", "2001:db8::2"):
        limit.opened(address)
    assert isinstance(limit.refusal("2001:db8::3"), QuotaExceeded)
    assert limit.refusal("2001:db8:0:1::1") is None
    limit.closed("2001:db8::1")
    assert limit.refusal("2001:db8::3") is None


async def test_open_and_refused_connections_are_counted() -> None:
    metrics = CountedConnections()
    limit = ConnectionLimit("line", 1, None, metrics)
    limit.opened("10.0.0.1")
    assert limit.refusal("10.0.0.2") is not None
    assert (metrics.count(), metrics.refused) == (1, 1)
