"""Bugs of the client's consumer where it meets its caller: waits, cancelled calls, seeks, pauses, errors."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_CORE = "raftlog.client.consumer.core:ConsumerCore."
_TESTS = "tests/unit/client/test_consuming.py::test_"

CONSUMERS = (
    Mutant(
        "a member without partitions does not wait",
        _CORE + "take",
        "if await self._rewind(left_s):",
        "if self._assignment and await self._rewind(left_s):",
        script=_TESTS + "a_member_without_partitions_waits_in_poll",
    ),
)
