"""The rules for appended batches. Only a bug breaks these rules, so a violation stops the process."""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.core.ready import HardState
from raftlog.errors import InvariantViolated
from raftlog.records.batch import Batch
from raftlog.storage.batch_walk import why_not_next


def require_follows(
    directory: str, batches: Sequence[Batch], expected: int, epoch: int, hard_state: HardState
) -> None:
    """Check that the batches begin at the offset ``expected`` and follow one another without a gap.

    Also check that their leader epochs do not fall, and lie between ``epoch`` and the term of ``hard_state``.
    """
    for batch in batches:
        header = batch.header
        trouble = why_not_next(header, expected, epoch)
        if not trouble and header.leader_epoch > hard_state.term:
            trouble = f"epoch {header.leader_epoch} before the hard state, which is {hard_state}"
        if trouble:
            raise InvariantViolated(f"{directory}: {trouble}")
        expected, epoch = header.base_offset + header.last_offset_delta + 1, header.leader_epoch
