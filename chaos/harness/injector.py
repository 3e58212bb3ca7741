"""Begins and ends the faults of a scenario while the cluster is under load.

Decides: when a fault may begin. A fault that is a damage waits until all other faults have ended and the
cluster is healthy. Later faults are delayed by the time of this wait, and left out once the time of the
scenario has passed. Each fault has a thread, so that a long fault does not delay another, except faults that
must be alone. In a scenario with ``one_by_one`` each fault waits like a damage, and no fault is left out.
"""

from __future__ import annotations

import threading
import time

from chaos.cluster_view import ClusterFailed
from chaos.harness.arena import Arena, Draw, NoTarget
from chaos.harness.faults import FAULTS
from chaos.harness.faults.steps import Steps
from chaos.harness.record import Injected
from chaos.harness.scenario import PlannedFault, Scenario
from raftlog.testing.waits import LIMIT_S


class Injector:
    """Carries out the faults of one scenario. ``start_s`` is the time of ``time.monotonic`` at which the run
    began.
    """

    def __init__(self, arena: Arena, scenario: Scenario, start_s: float) -> None:
        self.injected: list[Injected] = []
        self.left_out: list[str] = []  # faults without a target, and the reason
        self.problems: list[str] = []
        self._arena = arena
        self._scenario = scenario
        self._start_s = start_s
        self._active: dict[threading.Thread, str] = {}
        self._ending = threading.Event()

    @property
    def active(self) -> list[str]:
        """The faults that are in effect now."""
        return sorted(name for thread, name in [*self._active.items()] if thread.is_alive())

    def run(self) -> None:
        """Carry out all faults. Returns when the last fault has ended and the time of the scenario has
        passed.
        """
        begin_s = time.monotonic()
        end_s = begin_s + self._scenario.seconds
        for planned in self._scenario.faults:
            if self._ending.wait(max(0.0, begin_s + planned.at_s - time.monotonic())):
                break
            if time.monotonic() > end_s and not self._scenario.one_by_one:
                break
            if FAULTS[planned.fault].is_damage or self._scenario.one_by_one:
                waited_s = time.monotonic()
                is_healthy = self._wait_healthy(planned)
                begin_s += time.monotonic() - waited_s
                if not is_healthy:
                    continue
            thread = threading.Thread(target=self._inject, args=(planned,), name=planned.fault, daemon=True)
            self._active[thread] = planned.fault
            thread.start()
            if FAULTS[planned.fault].is_alone:
                began_s = time.monotonic()
                thread.join()
                begin_s += time.monotonic() - began_s
        self._ending.wait(max(0.0, end_s - time.monotonic()))
        self._join()

    def give_up(self) -> None:
        """Begin no more faults, and end the faults in effect early; ``run`` then returns soon."""
        self._ending.set()

    def stop(self) -> None:
        """End all faults early, and wait for their threads."""
        self.give_up()
        self._join()

    def _join(self) -> None:
        for thread in [*self._active]:
            thread.join()
        self._active.clear()

    def _wait_healthy(self, planned: PlannedFault) -> bool:
        self._join()
        try:
            self._arena.wait_healthy(LIMIT_S)  # otherwise the damage is left out
        except ClusterFailed as error:
            self.left_out.append(f"{planned.fault}: {error}")
            return False
        return True

    def _inject(self, planned: PlannedFault) -> None:
        fault = FAULTS[planned.fault]
        steps = fault.inject(self._arena, Draw(self._arena, planned.seed, planned.target))
        begun_s = self._now_s()
        try:
            target, effects = self._carry_out(steps, planned.seconds)
        except NoTarget as error:
            self.left_out.append(f"{fault.name}: {error}")
            return
        except Exception as error:  # the harness continues: other faults must be ended
            self.problems.append(f"{fault.name} at {begun_s:.1f} s: {type(error).__name__}: {error}")
            return
        self.injected.append(
            Injected(
                fault=fault.name,
                target=target,
                begun_s=begun_s,
                ended_s=self._now_s(),
                effects=effects,
                effect=fault.effect,
            )
        )

    def _carry_out(self, steps: Steps, seconds: float) -> tuple[str, int]:
        """Begin a fault, wait ``seconds``, and end it; return its target and the number of its effects."""
        target = next(steps)
        self._ending.wait(seconds)
        try:
            next(steps)
        except StopIteration as ended:
            return target, ended.value
        raise AssertionError("a fault yields once")

    def _now_s(self) -> float:
        return time.monotonic() - self._start_s
