"""What may stand behind what in a log: broken only by a mistake of ours, so it stops the process."""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.core.ready import HardState
from raftlog.errors import InvariantViolated
from raftlog.records.batch import Batch


def require_follows(
    directory: str, batches: Sequence[Batch], expected: int, epoch: int, hard_state: HardState
) -> None:
    """Offsets follow one another from ``expected``; epochs never fall below ``epoch`` nor pass the term."""
    for batch in batches:
        header = batch.header
        if header.base_offset != expected:
            raise InvariantViolated(f"{directory}: offset {header.base_offset} in place of {expected}")
        if header.leader_epoch != epoch:
            if not epoch < header.leader_epoch <= hard_state.term:
                raise InvariantViolated(
                    f"{directory}: epoch {header.leader_epoch} after {epoch}, {hard_state}: "
                    "epochs never fall, and the hard state is saved before the entries"
                )
            epoch = header.leader_epoch
        expected += header.last_offset_delta + 1
