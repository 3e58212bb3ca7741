"""Counting what Python code runs: the same in every run."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
