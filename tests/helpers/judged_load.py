"""What a load on real brokers must have shown in the end."""

from __future__ import annotations

import os
from dataclasses import replace

from chaos.checkers import check
from chaos.history import History, Outcome
from chaos.workload import Workload

SEED = int(os.environ.get("CHAOS_SEED", "20"))
"""The seed of all faults and loads of a test: equal in all runs, unless the environment names another."""


def judge(load: Workload) -> History:
    """No anomaly, no answer that should not be, and enough that succeeded for this to mean something."""
    history = load.history
    assert check(history) == []
    assert load.surprises == []
    acknowledged = history.count(Outcome.ACKNOWLEDGED)
    assert acknowledged >= 0.95 * len(history.sends), load.refusals
    lost = next(poll for poll in history.final if poll.records)
    others = [poll for poll in history.final if poll is not lost]
    assert check(replace(history, final=others)), "the judge sleeps: a page of the final read was taken away"
    return history
