"""Sends requests that any broker can answer: each operation of the HTTP contract is one call.

Leaves to others: connections and retries (``session``, and ``api.cli.reading`` without an event loop).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from raftlog.client.replies import Reply
from raftlog.wire.operation import Nothing, Operation

Answer = TypeVar("Answer")
Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Page(Protocol[Item_co]):
    """A page of a list; ``next_page_token`` is None on the last page."""

    @property
    def items(self) -> Sequence[Item_co]: ...

    @property
    def next_page_token(self) -> str | None: ...


class Asking(ABC):
    """Carries out operations through any broker."""

    @abstractmethod
    async def ask_any(
        self,
        method: str,
        path: str,
        *,
        body: msgspec.Struct | None = None,
        may_repeat: bool = True,
        retry_timeout_s: float | None = None,
        attempt_timeout_s: float | None = None,
        refusal_settles: bool = False,
    ) -> Reply:
        """Return the response of any broker; retry for at most ``retry_timeout_s`` seconds."""

    async def call(
        self,
        operation: Operation[Answer],
        body: msgspec.Struct | None = None,
        *,
        query: Mapping[str, str] | None = None,
        may_repeat: bool | None = None,
        retry_timeout_s: float | None = None,
        attempt_timeout_s: float | None = None,
        refusal_settles: bool = False,
        **fields: str | int,
    ) -> Answer:
        """Carry out an operation; ``fields`` fill in its path. Raises the errors of the operation."""
        reply = await self.ask_any(
            operation.method,
            _with_query(operation.at(**fields), query),
            body=body,
            may_repeat=operation.may_repeat if may_repeat is None else may_repeat,
            retry_timeout_s=retry_timeout_s,
            attempt_timeout_s=attempt_timeout_s,
            refusal_settles=refusal_settles,
        )
        return operation.answer() if operation.answer is Nothing else reply.read(operation.answer)

    async def all_items(
        self,
        operation: Operation[Page[Item]],
        *,
        query: Mapping[str, str] | None = None,
        retry_timeout_s: float | None = None,
        attempt_timeout_s: float | None = None,
        **fields: str | int,
    ) -> list[Item]:
        """Return the items of all pages of a list."""
        found: list[Item] = []
        path, asked = operation.at(**fields), dict(query or {})
        while True:
            reply = await self.ask_any(
                operation.method,
                _with_query(path, asked),
                retry_timeout_s=retry_timeout_s,
                attempt_timeout_s=attempt_timeout_s,
            )
            page = reply.read(operation.answer)
            found += page.items
            if page.next_page_token is None:
                return found
            asked["page_token"] = page.next_page_token


def _with_query(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path
