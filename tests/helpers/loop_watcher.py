"""An observer of a simulated loop for tests."""

from __future__ import annotations

from collections.abc import Callable

from verification.simulator.event_loop import Process


class Nobody:
    """Ignores callbacks and raises errors."""

    @property
    def watched(self) -> Callable[..., object]:
        """Nothing that runs."""
        return type(self).failed

    def stepped(self, process: Process) -> None:
        """Nothing."""

    def failed(self, process: Process | None, message: str, error: BaseException | None) -> None:
        """No test expects one."""
        raise AssertionError(message) from error
