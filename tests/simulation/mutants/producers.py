"""Bugs of the client's producer where it meets its caller: room, functions of the user, forks, the close."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_PRODUCING = "tests/unit/client/test_producing.py"
_TRANSACTIONS = "tests/unit/client/test_transactions.py"

PRODUCERS = (
    Mutant(
        "a record above half of the buffer does not wait for a smaller one",
        "raftlog.client.producer:AsyncProducer.make_ready",
        "if self._buffer.is_full or",
        "if not self._buffer.is_roomy or",
        script=_PRODUCING,
    ),
    Mutant(
        "a record sent during the commit is left out of its transaction",
        "raftlog.client.transaction:AsyncTransaction._flush",
        "await self.records.close(0)",
        "if self.records.failure is None:\n        return await self.records.close(0)",
        script=_TRANSACTIONS + "::test_a_record_sent_during_the_end_is_not_left_out_of_a_transaction",
    ),
)
