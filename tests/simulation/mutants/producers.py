"""Bugs of the client's producer where it meets its caller: room, functions of the user, forks, the close."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_PRODUCING = "tests/unit/client/test_producing.py"

PRODUCERS = (
    Mutant(
        "a record above half of the buffer does not wait for a smaller one",
        "raftlog.client.producer:AsyncProducer.make_ready",
        "if self._buffer.is_full or",
        "if not self._buffer.is_roomy or",
        script=_PRODUCING,
    ),
)
