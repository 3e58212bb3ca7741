"""Bugs of the client's producer where it meets its caller: room, functions of the user, forks, the close."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit, Mutant

_PRODUCING = "tests/unit/client/test_producing.py"
_FORKS = "tests/unit/client/test_forks.py"
_TRANSACTIONS = "tests/unit/client/test_transactions.py"
_CLOSED = (
    "tests/unit/client/test_decommissioned_partitions.py::test_a_record_that_moves_during_the_close_fails"
)

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
    Mutant(
        "a partitioner that raises keeps the records of a decommissioned partition from moving",
        "raftlog.client.narrowing:Narrowing._place",
        "except BaseException as error:",
        "except GeneratorExit as error:",
        script="tests/unit/client/test_decommissioned_partitions.py::"
        "test_a_partitioner_that_raises_fails_its_own_record_only",
    ),
    Mutant(
        "an on_ack that raises CancelledError ends the work of its producer",
        "raftlog.client.receipts:Batch.finish",
        "except BaseException:",
        "except Exception:",
        script=_PRODUCING,
    ),
    Mutant(
        "a function of the user that exits ends the thread of a client",
        "raftlog.client.portal:Portal._run_until_stopped",
        "except (SystemExit, KeyboardInterrupt):",
        "except GeneratorExit:",
        script=_PRODUCING,
    ),
    Mutant(
        "calls wait for ever once the thread of a client has ended",
        "raftlog.client.portal:Portal._run",
        "for future in tuple(self._pending):",
        "for future in ():",
        script=_PRODUCING,
    ),
    Mutant(
        "a client whose thread has ended accepts calls",
        "raftlog.client.portal:Portal._run",
        "self._is_open = False",
        "pass",
        script=_PRODUCING,
    ),
    Mutant(
        "a record moves to a partition whose sender the close has ended",
        "raftlog.client.producer:AsyncProducer._left",
        "if self._buffer.is_closed:",
        "if False:",
        more=(
            Edit(
                "raftlog.client.producer:AsyncProducer.close",
                "for batch in tuple(self._buffer.unfinished):",
                "for batch in [one for each in self._narrowings.values() for one in each.handed_over]:",
            ),
        ),
        script=_CLOSED,
    ),
    Mutant(
        "a record that partitions hand over during the close gets no outcome",
        "raftlog.client.producer:AsyncProducer.close",
        "for batch in tuple(self._buffer.unfinished):",
        "for batch in ():",
        script=_CLOSED,
    ),
    Mutant(
        "a batch may wait until its records fail",
        "raftlog.client.options:_times",
        "if linger_s >= delivery_timeout_s:",
        "if False:",
        script="tests/unit/client/test_options.py",
    ),
    Mutant(
        "a client waits for a thread of another process",
        "raftlog.client.portal:Portal.end_in_child",
        "self._is_forked, self._is_open = True, False",
        "pass",
        script=_FORKS,
    ),
    Mutant(
        "a producer accepts records in a child of its process",
        "raftlog.client.producer:AsyncProducer.end_in_child",
        "self._is_forked = self._is_closed = True",
        "pass",
        script=_FORKS,
    ),
)
