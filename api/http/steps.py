"""Runs the steps of a request that writes more than once, or reads after a write.

Decides: which error a client gets if a step fails after a write. A partly completed request is never reported
as "not done".
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from raftlog.errors import CommitUnknown, RaftlogError

Result = TypeVar("Result")


class Steps:
    """The steps of one request, beginning with its first write."""

    def __init__(self) -> None:
        self._has_written = False

    async def take(self, step: Awaitable[Result]) -> Result:
        """Run a step and return its result.

        Raises the errors of the first step unchanged, and ``CommitUnknown`` in place of each definite error
        of a later step.
        """
        try:
            result = await step
        except RaftlogError as error:
            if self._has_written and error.is_definite:
                raise CommitUnknown(
                    f"the request was carried out in part; the rest failed: {error}"
                ) from error
            raise
        self._has_written = True
        return result
