"""An observer of a simulated loop for tests."""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulator.event_loop import Process


class Nobody:
    """Ignores callbacks and raises errors."""

    def stepped(self, process: Process, function: Callable[..., object]) -> None:
        """Nothing."""

    def failed(self, process: Process | None, message: str, error: BaseException | None) -> None:
        """No test expects one."""
        raise AssertionError(message) from error
