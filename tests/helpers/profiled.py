"""Counting what Python code runs: the same in every run."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import TraceFunction


@contextmanager
def profiled(note: Callable[[FrameType, str, object], object]) -> Iterator[None]:
    """Tell ``note`` of all calls on this thread, as ``sys.setprofile`` does.

    The garbage collector rests meanwhile: the objects that it happens to find call functions, too.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        if was_enabled:
            gc.enable()


def opcodes_of(step: Callable[[], object]) -> int:
    """The instructions of the interpreter that a step takes; loops of C code count as one."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> TraceFunction:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    was_enabled, before = gc.isenabled(), sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(before)
        if was_enabled:
            gc.enable()
    return count
