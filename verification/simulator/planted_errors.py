"""Plants unexpected errors in the coordinators and the state machines of one broker.

Each error is raised once: in the next decision of a coordinator, before or after the decision's work, or when
a replica of an internal topic applies its next entry. Decides: where the error is raised. Leaves to others:
when an error is planted (``faults``), and the rules that must hold nevertheless (the checkers).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from verification.simulator.machine import Machine

PLANTED: Final = "nobody has thought of this"
"""Text of a planted error; a request whose own decision raised the error gets it in the answer."""

PLACES: Final = ("receive", "receive", "tick", "take", "begin", "apply")
IN_DECISIONS: Final = ("receive", "tick", "take")


def plant_errors(rng: random.Random, machine: Machine, is_over: Callable[[], bool]) -> None:
    """Plant an error in each replica of an internal topic that the machine has."""
    broker = machine.broker
    for (topic, _), replica in {} if broker is None else broker.manager.replicas.items():
        if not topic.startswith("__"):
            continue
        place, coordinator = rng.choice(PLACES), replica.machine.derived
        error: Exception = rng.choice((RuntimeError(PLANTED), MemoryError()))
        is_late = rng.random() < 0.5
        if place == "apply":
            machine.is_restart_needed = True  # in the end: the replica is opened again after half a minute
            _fails_once(replica.machine, place, error, is_over, is_late=is_late)
            continue
        owner = getattr(coordinator, "decisions", None) if place in IN_DECISIONS else coordinator
        if owner is not None:
            _fails_once(owner, place, error, is_over, is_late=is_late)


def _fails_once(
    owner: object, name: str, error: Exception, is_over: Callable[[], bool], *, is_late: bool
) -> None:
    work: Callable[..., object] = getattr(owner, name)

    def fails(*arguments: object, **options: object) -> object:
        vars(owner).pop(name, None)  # the method of its class is there again
        if is_over():
            return work(*arguments, **options)
        if is_late:
            work(*arguments, **options)
        raise error

    setattr(owner, name, fails)
