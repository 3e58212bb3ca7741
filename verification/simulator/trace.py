"""Records the events of a run: as a hash, which is equal for equal runs, and as lines of text."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from raftlog.types import NodeId


class Trace:
    """Adds every event to ``hash``, and keeps the lines if requested."""

    def __init__(self, now: Callable[[], float], *, keeps_lines: bool) -> None:
        self.hash = 0
        self.lines: list[tuple[float, NodeId | None, str]] = []
        self._now = now
        self._keeps_lines = keeps_lines

    def note(self, node: NodeId | None, what: str) -> None:
        """Note an event of a broker; with None, of the cluster or of a client."""
        now = self._now()
        self.hash = crc32(f"{now!r} {node} {what}".encode(), self.hash)
        if self._keeps_lines:
            self.lines.append((now, node, what))

    def add(self, other: Trace) -> None:
        """Add the events of another run, which continues this one from its end."""
        self.hash = crc32(str(other.hash).encode(), self.hash)
        self.lines += other.lines

    def frame(self, frame: bytes) -> None:
        """Note a frame that a broker received."""
        self.hash = crc32(frame, crc32(repr(self._now()).encode(), self.hash))

    def timeline(self) -> str:
        """Return all lines, one column per broker."""
        drawn = ["    time   where     what"]
        for now, node, what in self.lines:
            where = "-" if node is None else f"{'  ' * (node - 1)}b{node}"
            drawn.append(f"{now:8.3f} s {where:<10} {what}")
        return "\n".join(drawn)
