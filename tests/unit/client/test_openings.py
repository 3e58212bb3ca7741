"""The name of an opening of a transactional id: one until there is an answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from raftlog.client.incarnation import Incarnation
from raftlog.client.session import Session
from raftlog.errors import ConnectionLost
from raftlog.wire.transactions import OpenedTransaction, OpenTransaction


class Losing:
    """The part of ``Session`` that is used; some answers are lost."""

    def __init__(self, *lost: bool) -> None:
        self._lost = list(lost)
        self.names: list[str | None] = []

    async def ask_any(self, method: str, path: str, *, body: OpenTransaction, **limits: object) -> object:
        """Open."""
        self.names.append(body.incarnation)
        if self._lost.pop(0):
            raise ConnectionLost("no answer")
        opened = OpenedTransaction("copy@7.0", "copy", 7, 0, 1_000)
        return SimpleNamespace(read=lambda kind: opened)


# requirement: D3
async def test_an_opening_has_one_name_until_it_has_an_answer() -> None:
    session = Losing(True, True, False)
    incarnation = Incarnation(cast("Session", session), "copy", timeout_ms=1_000, limit_s=1.0)
    for _ in range(2):
        with pytest.raises(ConnectionLost):
            await incarnation.open()
    await incarnation.open()
    assert len(session.names) == 3
    assert len(set(session.names)) == 1
    other = Losing(False)
    await Incarnation(cast("Session", other), "copy", timeout_ms=1_000, limit_s=1.0).open()
    assert other.names[0] not in (None, session.names[0])
