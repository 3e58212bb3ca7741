"""Measures how long each broker has been silent while this controller led.

Decides: which time counts as silence. Leaves to others: the consequences (``liveness``, ``healing``).

Only observed time counts: the silence of every broker begins at 0 each time a controller is elected. Between
two calls of ``look`` at most ``step_ms_max`` count, so that a pause of this process or a jump of its clock
does not count as silence of brokers. One message ends a broker's silence.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.types import NodeId


class WatchedSilence:
    """The silence of each broker in milliseconds, updated by each call of ``look``."""

    def __init__(self, step_ms_max: float) -> None:
        self._step_ms_max = step_ms_max
        self._looked_at_ms: float | None = None
        self._silent_ms: dict[NodeId, float] = {}
        self._heard: frozenset[NodeId] = frozenset()

    @property
    def heard(self) -> frozenset[NodeId]:
        """The brokers that were heard at the last call of ``look``."""
        return self._heard

    @property
    def silent_ms(self) -> Mapping[NodeId, float]:
        """The silence of each broker in milliseconds; 0 if the broker was heard at the last look, or after
        one look only.
        """
        return self._silent_ms

    def look(self, now_ms: float, is_heard: Mapping[NodeId, bool]) -> None:
        """Add the time since the last look to the silence of each broker that is not heard.

        The silence of a broker that is heard becomes 0.
        """
        since_ms = now_ms if self._looked_at_ms is None else self._looked_at_ms
        step_ms = min(max(now_ms - since_ms, 0.0), self._step_ms_max)
        self._looked_at_ms = now_ms
        self._heard = frozenset(broker for broker, heard in is_heard.items() if heard)
        self._silent_ms = {
            broker: 0.0 if heard else self._silent_ms.get(broker, 0.0) + step_ms
            for broker, heard in is_heard.items()
        }

    def begin_again(self) -> None:
        """Forget the silence of all brokers, because this controller does not lead."""
        self._looked_at_ms = None
        self._silent_ms = {}
        self._heard = frozenset()
