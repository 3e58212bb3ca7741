"""Bugs in the runs of sinks that whole brokers must see: seeds of ``brokers-transactions`` look for them."""

from __future__ import annotations

from chaos.simulator.levels import BROKERS_TRANSACTIONS
from tests.helpers.planted_bugs import Mutant

_SINKS = "transactions.sinks:"


def _mutant(name: str, place: str, text: str, planted: str) -> Mutant:
    return Mutant(name, place, text, planted, level=BROKERS_TRANSACTIONS)


SINK_SEEDS = (
    _mutant(
        "a zombie that registers late fences the run at work",
        _SINKS + "registered",
        "if ask.run in before.retired:",
        "if False:",
    ),
    _mutant(
        "two runs of a query have one epoch",
        _SINKS + "_with_run",
        "before.epoch if is_same else before.epoch + 1",
        "before.epoch",
    ),
    _mutant(
        "a run is told that the next batch is committed",
        _SINKS + "is_committed",
        "ask.sequence <= before.sequence",
        "ask.sequence <= before.sequence + 1",
    ),
    _mutant(
        "an empty batch is committed again when its request arrives again",
        _SINKS + "is_new_batch",
        "return ask.sequence > before.sequence",
        "return ask.sequence >= before.sequence",
    ),
    _mutant(
        "a query that takes a sink over is told that its first batches are committed",
        _SINKS + "is_committed",
        "ask.owner == _owner_of_newest(before, ask.owner)",
        "True",
    ),
)
