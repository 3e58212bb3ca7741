"""Follows each process through its polls in a history, with its assignment at each poll."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from chaos.history import Assign, AssignKind, History, Poll


@dataclass(slots=True)
class Reader:
    """The state of a process between polls. ``last`` is the index of the last value read, by partition."""

    subscribes: bool = False
    last: dict[int, int] = field(default_factory=dict)
    stays: dict[int, int] = field(default_factory=dict)  # number of times that the process lost the partition
    assigns: list[Assign] = field(default_factory=list)  # the newest first
    has_had: set[int] = field(default_factory=set)  # partitions that were assigned or polled

    def advance(self, to_s: float) -> None:
        """Apply the assignments that began up to the time ``to_s``.

        The positions in partitions that are not in a new assignment are forgotten.
        """
        while self.assigns and self.assigns[-1].invoked_s <= to_s:
            assign = self.assigns.pop()
            kept = set(assign.partitions)
            self.subscribes = assign.kind is AssignKind.SUBSCRIBE
            self.last = {partition: index for partition, index in self.last.items() if partition in kept}
            for partition in self.has_had - kept:
                self.stays[partition] = self.stays.get(partition, 0) + 1
            self.has_had |= kept


def walk(history: History) -> Iterator[tuple[Poll, Reader]]:
    """Yield each poll with the state of its process at that time. The polls of each process come in order."""
    readers: defaultdict[int, Reader] = defaultdict(Reader)
    for assign in sorted(history.assigns, key=lambda assign: assign.invoked_s, reverse=True):
        readers[assign.process].assigns.append(assign)
    for poll in history.all_polls():
        reader = readers[poll.process]
        if reader.assigns:
            reader.advance(poll.invoked_s)
        if poll.rebalanced:
            reader.subscribes = True
        reader.has_had.add(poll.partition)
        yield poll, reader
