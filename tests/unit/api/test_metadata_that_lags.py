"""A broker that has just started, or that hears of news late, does not deny what others know."""

from __future__ import annotations

from dataclasses import replace

from tests.helpers.http_server import HttpServer, serve


def test_a_topic_that_was_acknowledged_elsewhere_is_never_denied() -> None:
    # requirement: T2
    async def scenario(server: HttpServer) -> None:
        await server.topic("orders")
        controller = server.cluster.controller
        controller.unheard = controller.image
        controller.image = replace(controller.image, topics={})
        stored = await server.post("/v1/topics/orders/records", {"records": [{"value": "a"}]})
        assert stored.status == 200

    serve(scenario)


def test_a_broker_that_cannot_ask_says_that_it_does_not_know() -> None:
    async def scenario(server: HttpServer) -> None:
        server.cluster.controller.leader = None
        unknown = await server.get("/v1/topics/nope")
        assert (unknown.status, unknown.code) == (503, "no_leader")
        assert unknown.json["retryable"] is True

    serve(scenario)
