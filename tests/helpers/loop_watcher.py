"""Who looks on at a simulated loop in tests."""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulator.event_loop import Process


class Nobody:
    """Looks on at a loop, and lets errors through."""

    def stepped(self, process: Process, function: Callable[..., object]) -> None:
        """Nothing."""

    def failed(self, process: Process | None, message: str, error: BaseException | None) -> None:
        """No test expects one."""
        raise AssertionError(message) from error
