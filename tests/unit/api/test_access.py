"""Which names a request may address a broker by, and which web pages may write to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from broker.settings import CorsSettings, HttpSettings
from raftlog.types import NodeId
from tests.helpers.http_server import HttpServer, Reply, served

BOTH_WAYS = pytest.mark.parametrize("more", [{}, {"TE": "trailers"}], ids=["plain", "aiohttp"])
TOPIC = {"name": "made", "partitions": 1}
UI = "https://ui.example:8443"


async def ask(server: HttpServer, host: str, more: dict[str, str]) -> Reply:
    """One request to a host of this name."""
    return await server.call("GET", "/v1/cluster", sent={"Host": host, **more})


@BOTH_WAYS
@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:7070", "LocalHost:80", "localhost.:1"),
        *("127.0.0.1:7070", "10.1.2.3", "[::1]:7070"),
        *("own.example", "OWN.example:7070", "own.example.", "b3.example:7072", "listed.example:1"),
        "port.example:8080",
    ],
)
@served(
    own_names=frozenset({"own.example"}), allowed_hosts=frozenset({"listed.example", "port.example:8080"})
)
async def test_a_known_host_name_is_taken(server: HttpServer, host: str, more: dict[str, str]) -> None:
    controller = server.cluster.controller
    brokers = dict(controller.image.brokers)
    brokers[NodeId(3)] = replace(brokers[NodeId(3)], http_url="http://b3.example:7072")
    controller.image = replace(controller.image, brokers=brokers)
    for _ in range(2):
        assert (await ask(server, host, more)).status == 200


@BOTH_WAYS
@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:7070", "localhost.evil.example", "127.0.0.1.evil.example", "1.2.3"),
        *("port.example", "port.example:8081", "localhost:a", "localhost:70:70", "[localhost]"),
        *("", "[::1", "b3"),
    ],
)
@served(allowed_hosts=frozenset({"port.example:8080"}))
async def test_any_other_host_name_is_refused(server: HttpServer, host: str, more: dict[str, str]) -> None:
    for _ in range(2):
        refused = await ask(server, host, more)
        assert (refused.status, refused.code) == (421, "misdirected_request")
        assert "http.allowed_hosts" in str(refused.json["detail"])
    made = await server.call("POST", "/v1/topics", TOPIC, {"Host": host, **more})
    assert made.status == 421
    assert (await server.get("/v1/topics/made")).status == 404


@served(allowed_hosts=frozenset({"*"}))
async def test_all_names_are_taken_if_the_setting_says_so(server: HttpServer) -> None:
    for host in ("evil.example", "evil.example:7070", "", "a b"):
        assert (await ask(server, host, {})).status == 200


@served()
async def test_http_1_0_may_name_no_host(server: HttpServer) -> None:
    answer = await server.raw(b"GET /v1/cluster HTTP/1.0\r\n\r\n", until_closed=True)
    assert answer.startswith(b"HTTP/1.0 200 ")


@served()
async def test_a_broker_that_went_takes_its_name_along(server: HttpServer) -> None:
    controller = server.cluster.controller
    before = controller.image
    gone = replace(before.brokers[NodeId(3)], http_url="http://b3.example:7072")
    controller.image = replace(before, brokers={**before.brokers, NodeId(3): gone})
    assert (await ask(server, "b3.example:7072", {})).status == 200
    controller.image = before
    assert (await ask(server, "b3.example:7072", {})).status == 421


@BOTH_WAYS
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:3000", "http://localhost", ""]
)
@served(partitions=1)
async def test_a_foreign_page_may_not_write(server: HttpServer, origin: str, more: dict[str, str]) -> None:
    sent = {"Host": "localhost:7070", "Origin": origin, **more}
    transfer = "/v1/topics/orders/partitions/0:transfer-leadership"
    for method, path, body in (
        ("POST", transfer, None),
        ("POST", "/v1/topics", TOPIC),
        ("PATCH", "/v1/topics/orders/config", {"config": {"retention.ms": 1}}),
        ("DELETE", "/v1/topics/orders", None),
    ):
        refused = await server.call(method, path, body, sent)
        assert (refused.status, refused.code) == (403, "origin_not_allowed")
        assert "cors.allowed_origins" in str(refused.json["detail"])
    read = await server.call("GET", "/v1/topics/orders", sent=sent)
    assert read.status == 200
    assert not [name for name in read.headers if name.startswith("access-control-")]


@BOTH_WAYS
@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:7070", "http://localhost:7070"),
        ("LOCALHOST:7070", "http://localhost:7070"),
        ("127.0.0.1", "https://127.0.0.1"),
        ("[::1]:7070", "http://[::1]:7070"),
    ],
)
@served()
async def test_a_page_of_the_broker_itself_may_write(
    server: HttpServer, host: str, origin: str, more: dict[str, str]
) -> None:
    made = await server.call("POST", "/v1/topics", TOPIC, {"Host": host, "Origin": origin, **more})
    assert made.status == 201


@BOTH_WAYS
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@served(allowed_origins=frozenset({UI}))
async def test_a_listed_page_reads_and_writes(server: HttpServer, accept: str, more: dict[str, str]) -> None:
    sent = {"Origin": UI, **more}
    made = await server.call("POST", "/v1/topics", TOPIC, sent)
    refused = await server.call("POST", "/v1/topics", TOPIC, sent)
    head = f"GET /v1/topics/made/partitions/0/records HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"
    lines = "".join(f"{name}: {text}\r\n" for name, text in sent.items())
    read = await server.raw(f"{head}{lines}\r\n".encode())
    assert (made.status, refused.status, read[:11]) == (201, 409, b"HTTP/1.1 20")
    for answer in (made, refused):
        assert answer.headers["access-control-allow-origin"] == UI
        assert answer.headers["vary"] == "Origin"
        exposed = answer.headers["access-control-expose-headers"].split(", ")
        assert {"ETag", "Raftlog-Leader", "Raftlog-Next-Offset", "Raftlog-Request-Id"} <= set(exposed)
    assert f"\r\nAccess-Control-Allow-Origin: {UI}\r\n".encode() in read
    other = await server.call("GET", "/v1/topics", sent=more)
    assert other.headers["vary"] == "Origin"  # a cache must not give it to the page
    foreign = await server.call("POST", "/v1/topics", TOPIC, {"Origin": "http://ui.example", **more})
    assert (foreign.status, foreign.code) == (403, "origin_not_allowed")


@served(allowed_origins=frozenset({"*"}))
async def test_a_setting_lets_all_pages_write_without_credentials(server: HttpServer) -> None:
    made = await server.call("POST", "/v1/topics", TOPIC, {"Origin": "http://any.example"})
    assert made.status == 201
    assert made.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in made.headers


@served(allowed_origins=frozenset({UI}))
async def test_a_browser_that_asks_is_told_what_a_listed_page_may_send(server: HttpServer) -> None:
    asking = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "content-type"}
    path = "/v1/topics/orders/config"  # whether there is such a topic is the request's to say
    told = await server.call("OPTIONS", path, sent={"Origin": UI, **asking})
    assert (told.status, told.body) == (204, b"")
    assert told.headers["access-control-allow-origin"] == UI
    assert told.headers["access-control-allow-methods"] == "GET, PATCH"
    assert told.headers["access-control-allow-headers"] == "*"
    assert int(told.headers["access-control-max-age"]) > 0
    assert told.headers["vary"] == "Origin"
    foreign = await server.call("OPTIONS", path, sent={"Origin": "http://evil.example", **asking})
    assert foreign.status == 405
    assert not [name for name in foreign.headers if name.startswith("access-control-")]
    assert (await server.call("OPTIONS", "/nothing", sent={"Origin": UI, **asking})).status == 404
    assert (await server.call("OPTIONS", path, sent={"Origin": UI})).status == 405


@pytest.mark.parametrize("host", ["http://a", "a/b", "", "a:b", "*.example"])
def test_a_setting_that_is_no_name_is_refused(host: str) -> None:
    with pytest.raises(ValidationError, match="is neither a name such as"):
        HttpSettings(allowed_hosts=(host,))


@pytest.mark.parametrize("origin", ["ui.example", "https://ui.example/", "null", ""])
def test_a_setting_that_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValidationError, match="is neither an origin such as"):
        CorsSettings(allowed_origins=(origin,))


def test_settings_are_compared_in_lower_case() -> None:
    assert HttpSettings(allowed_hosts=("A.example:1", "*")).allowed_hosts == ("a.example:1", "*")
    assert CorsSettings(allowed_origins=("HTTPS://A:1",)).allowed_origins == ("https://a:1",)
