"""Runs in virtual time fail instead of hanging."""

from __future__ import annotations

import asyncio

import pytest

from tests.helpers import virtual_time
from tests.helpers.virtual_time import run_virtual


def test_a_task_that_never_waits_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "TURNS_AT_ONCE_MAX", 100)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="the time stands still"):
        run_virtual(spin())


def test_many_turns_are_no_error_while_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "TURNS_AT_ONCE_MAX", 100)

    async def work() -> int:
        for _ in range(300):
            await asyncio.sleep(0.001)
            for _ in range(10):
                await asyncio.sleep(0)
        return 1

    assert run_virtual(work()) == 1
