"""Brokers that are admitted over HTTP, and the errors of requests that are refused."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from api.http.join_tokens import LIFETIME_MS
from raftlog.types import NodeId
from raftlog.wire.joining import AdmitBroker, BrokerAdmitted, read_token, signed, with_proof
from tests.helpers.fake_services import SECRET
from tests.helpers.http_server import HttpServer, Reply, served

OTHER = b"the secret of another cluster..."


async def token_of(server: HttpServer) -> str:
    made = await server.post("/v1/cluster/join-tokens")
    assert made.status == 201
    return str(made.json["token"])


def request_with(token: str, *, number: int = 1, secret: bytes = SECRET, **fields: object) -> AdmitBroker:
    plain = AdmitBroker(
        token=token,
        proof="0" * 64,
        admission_id=f"{number:032x}",
        host="127.0.0.1",
        port=9100 + number,
        http=f"http://127.0.0.1:{8000 + number}",
    )
    return with_proof(structs.replace(plain, **fields), secret)


async def asked(server: HttpServer, request: AdmitBroker) -> Reply:
    return await server.post("/v1/brokers", msgspec.json.encode(request), Content_Type="application/json")


# requirement: F2
@served()
async def test_a_broker_with_a_token_and_the_secret_is_let_in_and_told_of_the_others(
    server: HttpServer,
) -> None:
    token = await token_of(server)
    assert read_token(token).urls[0] == "http://127.0.0.1:7070"
    reply = await asked(server, request_with(token))
    assert (reply.status, reply.headers["location"]) == (201, "/v1/brokers/4")
    body = msgspec.json.decode(reply.body, type=BrokerAdmitted)
    assert (body.broker_id, body.cluster_id) == (4, "test")
    assert [(peer.broker_id, peer.port) for peer in body.peers] == [
        (1, 9001),
        (2, 9002),
        (3, 9003),
        (4, 9101),
    ]
    again = await asked(server, request_with(token))
    assert again.body == reply.body, "an answer that was lost is given again"
    assert (await server.get("/v1/brokers/4")).json["alive"] is False
    other = await asked(server, request_with(token, number=2))
    assert other.json["broker_id"] == 5, "a token is for any number of brokers, for an hour"


@served()
async def test_without_the_secret_nobody_gets_in(server: HttpServer) -> None:
    token = await token_of(server)
    right = request_with(token)
    for wrong in (
        request_with(token, secret=OTHER),
        structs.replace(right, proof="0" * 64),
        structs.replace(right, host="127.0.0.9"),  # a request that was changed on its way
        request_with(signed(read_token(token), OTHER)),
    ):
        reply = await asked(server, wrong)
        assert (reply.status, reply.code) == (403, "join_refused")
    assert NodeId(4) not in server.cluster.controller.image.brokers


@served()
async def test_a_token_of_another_cluster_or_of_yesterday_is_refused(server: HttpServer) -> None:
    token = read_token(await token_of(server))
    other = signed(structs.replace(token, cluster_id="another"), SECRET)
    reply = await asked(server, request_with(other))
    assert (reply.status, reply.code) == (403, "join_refused")
    assert "this is cluster 'test'" in str(reply.json["detail"])
    old = signed(structs.replace(token, expires_at=token.expires_at - 2 * LIFETIME_MS), SECRET)
    reply = await asked(server, request_with(old))
    assert "has expired" in str(reply.json["detail"])


@served()
async def test_an_id_or_an_address_in_use_is_a_conflict(server: HttpServer) -> None:
    token = await token_of(server)
    for fields in ({"broker_id": 3}, {"broker_id": 3, "replace": True}, {"port": 9002}):
        reply = await asked(server, request_with(token, **fields))
        assert (reply.status, reply.code) == (409, "conflict")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"host": "0.0.0.0"}, "host"),
        ({"host": "::"}, "host"),
        ({"host": "a b"}, "host"),
        ({"host": "log4.example"}, "host"),  # the others are on loopback
        ({"http": "log4:7070"}, "http"),
        ({"http": "http://log4:7070/path"}, "http"),
        ({"broker_id": 1 << 40}, "broker_id"),
    ],
)
@served()
async def test_what_can_never_work_is_refused_with_the_field(
    server: HttpServer, fields: dict[str, object], named: str
) -> None:
    reply = await asked(server, request_with(await token_of(server), **fields))
    assert reply.status == 422
    assert named in f"{reply.json.get('field')} {reply.json['detail']}"


@served()
async def test_a_misspelt_option_is_refused(server: HttpServer) -> None:
    body = structs.asdict(request_with(await token_of(server))) | {"repalce": True}
    assert (await server.post("/v1/brokers", body)).status == 422


@served()
async def test_what_is_no_token_is_refused_with_the_remedy(server: HttpServer) -> None:
    reply = await asked(server, request_with("not a token"))
    assert (reply.status, reply.code) == (422, "invalid_request")
    assert "raftlog cluster token" in str(reply.json["detail"])
