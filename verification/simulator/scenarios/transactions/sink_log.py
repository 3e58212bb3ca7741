"""Follows the committed records of sinks: which run may write, and which batches are committed (T7, T11).

No code of the coordinator is used. A row of a sink with a higher epoch registers a run; any other row commits
a batch. No client of the simulator takes over its own sink, for which there would be a third kind of row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from transactions.records import Handle, Sink, Transaction
from verification.simulator.result import Broken

WHOLE: Final = "T7 a batch of a sink is decided as a whole, and once"
IN_ORDER: Final = "T11 batches of a sink are committed in order, by its newest run"


class Batch(NamedTuple):
    """A committed batch of a sink; the owner is empty for a sink without runs."""

    key: str
    owner: str
    sequence: int


class Run(NamedTuple):
    """A registered run of a sink: its owner and its epoch."""

    owner: str
    epoch: int


class SinkLog:
    """The committed batches and the registered runs of all sinks."""

    def __init__(self) -> None:
        self.batches: set[Batch] = set()
        self.runs: dict[tuple[str, str], Run] = {}  # by key and name

    def take(
        self, key: str, before: Sink | None, after: Sink, committed: Mapping[Handle, Transaction]
    ) -> Batch | None:
        """Check a row of a sink and the transactions committed together with it; return its batch. Raises
        ``Broken``.
        """
        epoch_before = 0 if before is None else before.epoch
        if after.epoch > epoch_before:
            self._register(key, epoch_before, after)
            return None
        if after.epoch < epoch_before:
            raise Broken(IN_ORDER, f"{key}: epoch {after.epoch} follows {epoch_before}")
        if not set(after.handles) <= set(committed):
            raise Broken(WHOLE, f"{after.sequence} of {key}: {after.handles}, not {set(committed)}")
        batch = Batch(key, after.owner, after.sequence)
        if batch in self.batches:
            raise Broken(WHOLE, f"{batch} is committed again, with {after.handles}")
        self._check_order(batch, before, after)
        fenced = [one for one in after.handles if committed[one].run_epoch != after.epoch]
        if fenced:
            raise Broken(IN_ORDER, f"{batch} of epoch {after.epoch} has {fenced} of other runs")
        self.batches.add(batch)
        return batch

    def _register(self, key: str, epoch_before: int, after: Sink) -> None:
        if after.epoch != epoch_before + 1 or (key, after.run) in self.runs:
            raise Broken(IN_ORDER, f"{after.run} of {key} gets epoch {after.epoch} behind {epoch_before}")
        self.runs[key, after.run] = Run(after.owner, after.epoch)

    def _check_order(self, batch: Batch, before: Sink | None, after: Sink) -> None:
        if before is None or before.owner_before:
            return  # the first one of its owner
        is_next = after.sequence == before.sequence + 1 if after.owner else after.sequence > before.sequence
        if not is_next:
            raise Broken(IN_ORDER, f"{batch} follows {before.sequence}")

    # Answers, once all that is committed by then is known.

    def check_begun(
        self, key: str, run: str, owner: str, sequence: int, epoch: int, is_committed: bool
    ) -> None:
        """Check the answer to a run that registers. Raises ``Broken``."""
        known = self.runs.get((key, run))
        if epoch and known != Run(owner, epoch):
            raise Broken(IN_ORDER, f"{run} of {key} gets epoch {epoch}, but is registered as {known}")
        if is_committed and Batch(key, owner, sequence) not in self.batches:
            raise Broken(IN_ORDER, f"the answer to {run} is that batch {sequence} of {key} is committed")

    def check_committed(self, key: str, run: str, sequence: int) -> None:
        """Check the answer to a driver that its batch is committed. Raises ``Broken``."""
        owner = self.runs[key, run].owner if run else ""
        if Batch(key, owner, sequence) not in self.batches:
            raise Broken(
                WHOLE, f"the answer to {run or 'a driver'} is that batch {sequence} of {key} is committed"
            )
