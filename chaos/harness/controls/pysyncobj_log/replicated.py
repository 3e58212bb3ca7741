"""Defines the replicated log of a node: pysyncobj, unmodified, and the values that it has applied.

A module of its own: with the class in ``node``, which runs as ``__main__``, the control acknowledges nothing
after its faults, and has no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport


class ReplicatedLog(SyncObj):  # type: ignore[misc]
    """The values that the library has applied.

    An append is acknowledged when the library reports that it is committed and applied. The callback of an
    append gets the offset and one of ``pysyncobj.FAIL_REASON``.
    """

    def __init__(
        self,
        own: str | Node,
        others: Sequence[str | Node],
        conf: SyncObjConf,
        transport: Transport | None = None,
    ) -> None:
        self._values: list[str] = []  # set before the library inspects all attributes
        super().__init__(own, others, conf, transport=transport)

    @property
    def values(self) -> list[str]:
        """Values applied on this node, in the order of their offsets."""
        return list(self._values)

    @replicated  # type: ignore[untyped-decorator]
    def append(self, value: str, padding: str) -> int:
        """Add a value; ``padding`` only makes the entry larger. Returns the offset."""
        self._values.append(value)
        return len(self._values) - 1
