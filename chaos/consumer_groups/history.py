"""Records the events that members, producers and observers of one group saw: one JSON line per event.

Times are seconds of the machine's monotonic clock, which all processes of the machine share. A request and
its response are one event: its content was true at some moment between ``invoked_s`` and ``completed_s``.
Requests without a response are not recorded, because they prove nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, assert_never

import msgspec


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Values that a producer stored at consecutive offsets, from this offset on."""

    partition: int
    offset: int
    values: tuple[str, ...]


class Delivered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Records that a member processed. This event is recorded before the commit of their offsets is sent."""

    member: str
    partition: int
    records: tuple[tuple[int, str], ...]  # (offset, value)


class Owned(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The partitions that a member owned in a generation."""

    member: str
    generation: int
    partitions: tuple[int, ...]
    invoked_s: float
    completed_s: float


class Committed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A commit of a member that was acknowledged."""

    member: str
    generation: int
    partition: int
    offset: int
    invoked_s: float
    completed_s: float


class SeenOffset(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A committed offset that an observer read, and the generation in which it was committed."""

    partition: int
    offset: int
    generation: int
    invoked_s: float
    completed_s: float


class SeenGeneration(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The generation of the group, as seen by a member or an observer."""

    generation: int
    invoked_s: float
    completed_s: float


class Surprise(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A response that no member should ever get."""

    member: str
    what: str


Event = Acknowledged | Delivered | Owned | Committed | SeenOffset | SeenGeneration | Surprise
_events = msgspec.json.Decoder(Event)


@dataclass(slots=True)
class GroupHistory:
    """All events of a run by kind; within a kind they are in no order."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    seen_offsets: list[SeenOffset] = field(default_factory=list)
    seen_generations: list[SeenGeneration] = field(default_factory=list)
    surprises: list[Surprise] = field(default_factory=list)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Create the history of the events of one run."""
        found = cls()
        for event in events:
            found.add(event)
        return found

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the events of all recorders in a directory."""
        return cls.of(event for path in sorted(directory.glob("*.jsonl")) for event in _read(path))

    def add(self, event: Event) -> None:
        """Add one event to the history."""
        match event:
            case Acknowledged():
                self.acknowledged.append(event)
            case Delivered():
                self.delivered.append(event)
            case Owned():
                self.owned.append(event)
            case Committed():
                self.committed.append(event)
            case SeenOffset():
                self.seen_offsets.append(event)
            case SeenGeneration():
                self.seen_generations.append(event)
            case Surprise():
                self.surprises.append(event)
            case _:
                assert_never(event)


class Recorder:
    """Appends events to a file. When ``add`` returns, the event survives a kill of its process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, event: Event) -> None:
        """Append one event to the file."""
        os.write(self._file, msgspec.json.encode(event) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)


def _read(path: Path) -> Iterator[Event]:
    *lines, _ = path.read_bytes().split(
        b"\n"
    )  # the last part is empty, or its process was killed while it wrote
    for line in lines:
        yield _events.decode(line)
