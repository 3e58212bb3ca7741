"""Requests to one broker that are repeated while it refuses them for a time, as during an election."""

from __future__ import annotations

from collections.abc import Mapping

from tests.helpers.real_cluster import RETRYABLE, Answer, call, eventually


def settled(
    url: str, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """The first answer of this broker that is no refusal for a time. The request may be carried out twice."""

    def answered() -> Answer | None:
        answer = call(url, method, path, body, headers)
        return None if answer.status in RETRYABLE else answer

    return eventually(answered, what=f"an answer to {method} {path} at {url}")


def delete_topic(url: str, name: str) -> None:
    """Delete a topic. A repeated request finds none where the answer to the first is not known."""
    gone = settled(url, "DELETE", f"/v1/topics/{name}")
    assert gone.status in (200, 404), gone
