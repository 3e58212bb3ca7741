"""The steps of a request that writes more than once, or reads after a write.

Decides: which error a client gets for a step behind a write. Nothing says "not done" of what is done in part.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from raftlog.errors import CommitUnknown, RaftlogError

Result = TypeVar("Result")


class Steps:
    """The steps of one request from its first write on."""

    def __init__(self) -> None:
        self._has_written = False

    async def take(self, step: Awaitable[Result]) -> Result:
        """The result of a step. Raises what the first step raises.

        Raises ``CommitUnknown`` for every definite error of a later step.
        """
        try:
            result = await step
        except RaftlogError as error:
            if self._has_written and error.is_definite:
                raise CommitUnknown(f"a part of the request is done, and the rest is not: {error}") from error
            raise
        self._has_written = True
        return result
