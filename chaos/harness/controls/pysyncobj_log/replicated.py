"""The log itself: pysyncobj, unmodified, and the values that it has applied."""

from __future__ import annotations

from collections.abc import Sequence

from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport


class ReplicatedLog(SyncObj):  # type: ignore[misc]
    """An append is acknowledged when the library reports that it is committed and applied.

    Its callback gets the offset and one of ``pysyncobj.FAIL_REASON``.
    """

    def __init__(
        self,
        own: str | Node,
        others: Sequence[str | Node],
        conf: SyncObjConf,
        transport: Transport | None = None,
    ) -> None:
        self._values: list[str] = []  # before the library looks at all attributes
        super().__init__(own, others, conf, transport=transport)

    @property
    def values(self) -> list[str]:
        """Applied here, in the order of their offsets."""
        return list(self._values)

    @replicated  # type: ignore[untyped-decorator]
    def append(self, value: str, padding: str) -> int:
        """Add a value; ``padding`` only makes the entry larger. Returns the offset."""
        self._values.append(value)
        return len(self._values) - 1
