"""Base class of scenario checkers: collects the committed entries of some partitions, and delays checks until
all are known.

A leader with a full disk may commit an entry that only the other replicas have stored. Such an entry may be
in none of the logs that the checker has read so far, so checks wait until it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from raftlog.types import GroupId
from verification.simulator.originals import Original
from verification.simulator.records import GroupRecord
from verification.simulator.result import Broken
from verification.simulator.simulated_cluster import SimulatedCluster

Place = tuple[str, int]
"""Topic and partition."""


class PatientJudge:
    """Collects the committed batches of some topics' partitions, in order."""

    def __init__(self, cluster: SimulatedCluster, *topics: str) -> None:
        self.records: dict[Place, GroupRecord] = {}
        self.waiting: list[Callable[[], None]] = []
        self._cluster = cluster
        names = "|".join(map(re.escape, topics))
        self._folder = re.compile(rf"/({names})-[0-9a-f]{{32}}/Partition-(\d+)$")
        self._places: dict[GroupId, Place | None] = {}
        self._taken: dict[GroupId, int] = {}  # how many committed entries

    def place_of(self, record: GroupRecord) -> Place | None:
        """Return the partition of a group; None if this checker does not follow the partition."""
        if record.group_id not in self._places and record.replicas:
            found = self._folder.search(next(iter(record.replicas.values())).directory)
            self._places[record.group_id] = None if found is None else (found[1], int(found[2]))
        return self._places.get(record.group_id)

    def newly_committed(self, place: Place, record: GroupRecord) -> Iterable[Original]:
        """Return the committed batches that were not returned before, in the form in which they were
        appended.
        """
        newest = self.records.setdefault(place, record)  # the partition may have been removed and added again
        self.records[place] = max(newest, record, key=lambda each: each.group_id)
        assert record.originals is not None
        first, self._taken[record.group_id] = self._taken.get(record.group_id, 0), len(record.committed)
        return map(record.originals.of, record.committed[first:])

    def check_waiting(self) -> None:
        """Carry out the checks that have waited, if all committed entries are known now."""
        if self.waiting and not self.is_behind():
            waiting, self.waiting = self.waiting, []
            for check in waiting:
                self.checked(check)

    def look(self) -> None:
        """Update the record of committed entries from the state of every broker."""
        for machine in self._cluster.machines:
            self._cluster.checker.stepped(machine)

    def when_known(self, check: Callable[[], None]) -> None:
        """Carry out a check once all entries that are committed now are known: at once, or later."""
        if self.is_behind():
            self.waiting.append(check)
        else:
            self.checked(check)

    def is_behind(self) -> bool:
        """Return whether a broker knows committed entries that none of the parsed logs shows yet."""
        groups = [one.broker.host.groups for one in self._cluster.machines if one.broker is not None]
        for record in self.records.values():
            end = record.committed[-1].last if record.committed else -1
            if self._taken[record.group_id] < len(record.committed):
                return True
            for by_id in groups:
                group = by_id.get(record.group_id)
                if group is not None and group.commit_index > end and not record.is_retired:
                    return True
        return False

    def checked(self, check: Callable[[], None]) -> None:
        """Carry out a check; report an error that it raises as a violation."""
        try:
            check()
        except Broken as broken:
            self._cluster.violated(broken.invariant, broken.detail)
