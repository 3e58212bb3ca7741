"""Runs a consumer group beside the producers: members that join and leave during the faults.

Decides: how many members there are, and which records they must have read at the end. Leaves to others: what
a member does, and the rules for a group (``chaos.consumer_groups``).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from chaos.checkers import Anomaly
from chaos.cluster_view import ClusterFailed
from chaos.consumer_groups.checkers import check
from chaos.consumer_groups.crowd import Crowd, CrowdFailed, Settings
from chaos.consumer_groups.history import Acknowledged, GroupHistory, Recorder
from chaos.consumer_groups.observer import Observer
from chaos.history import History, Outcome
from raftlog.testing.waits import eventually

GROUP: Final = "chaos"
MEMBERS: Final = (3, 3)  # of each process
LIFE_S: Final = 40.0  # average of a member


class GroupLoad:
    """The members of the group, as processes, and an observer, as a thread, until the block ends."""

    def __init__(self, directory: Path, urls: Sequence[str], topic: str, seed: int, ends_s: float) -> None:
        """Create the load. Members do not leave after ``ends_s``, a time of ``time.monotonic``."""
        directory.mkdir()
        self._directory = directory
        self._rng = random.Random(seed)
        self._recorder = Recorder(directory / "observer.jsonl")
        self._observer = Observer(urls, GROUP, self._recorder, self._rng)
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._observer.run, args=(self._stopping,), name="observer", daemon=True
        )
        self._crowd = Crowd(
            directory,
            Settings(
                urls=list(urls),
                group=GROUP,
                topic=topic,
                name="",
                file="",
                seed=self._rng.getrandbits(32),
                members=0,
                life_s=LIFE_S,
                steady_at_s=ends_s,
            ),
            MEMBERS,
        )
        self._stack = ExitStack()

    def check(self) -> None:
        """Raise ``ClusterFailed`` if a process with members has ended, because the load is then
        incomplete.
        """
        try:
            self._crowd.check()
        except CrowdFailed as error:
            raise ClusterFailed(f"members of the consumer group have ended: {error}") from None

    @property
    def has_ended(self) -> bool:
        """Whether a process with members has ended, so that ``check`` raises."""
        try:
            self.check()
        except ClusterFailed:
            return True
        return False

    def drain(self, history: History) -> list[Anomaly]:
        """Wait until the group has committed all acknowledged records; return all violations.

        Raises ``ClusterFailed`` if this takes too long.
        """
        try:
            eventually(
                lambda: self._is_drained(history),
                what="the group commits everything",
                progress=lambda: self._uncommitted(history),
            )
        except AssertionError as error:
            raise ClusterFailed(f"{self._uncommitted(history)} (committed, wanted): {error}") from error
        try:
            self._crowd.stop()
        except CrowdFailed as error:
            raise ClusterFailed(str(error)) from error
        self._stopping.set()
        self._thread.join()
        seen = GroupHistory.read(self._directory)
        seen.acknowledged += _acknowledged(history)
        return [Anomaly(f"group: {found.kind}", -1, found.detail) for found in check(seen)]

    def _is_drained(self, history: History) -> bool:
        self.check()
        return not self._uncommitted(history)

    def _uncommitted(self, history: History) -> dict[int, tuple[int, int]]:
        """Return the committed offset and the wanted offset of each partition that is behind.

        The wanted offset is above all acknowledged records.
        """
        ends: dict[int, int] = {}
        for send in history.sends:
            if send.outcome is Outcome.ACKNOWLEDGED and send.offset is not None:
                ends[send.partition] = max(ends.get(send.partition, 0), send.offset + 1)
        known = self._observer.committed()
        return {
            number: (known.get(number, 0), end) for number, end in ends.items() if known.get(number, 0) < end
        }

    def __enter__(self) -> Self:
        self._stack.enter_context(self._recorder)
        self._stack.callback(self._thread.join)
        self._stack.callback(self._stopping.set)
        self._thread.start()
        self._stack.enter_context(self._crowd)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()


def _acknowledged(history: History) -> list[Acknowledged]:
    return [
        Acknowledged(partition=send.partition, offset=send.offset, values=(send.value,))
        for send in history.sends
        if send.outcome is Outcome.ACKNOWLEDGED and send.offset is not None
    ]
