"""Runs without log output and without garbage collection."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_off(*, collects: bool = False) -> Iterator[None]:
    """For one run. With ``collects`` garbage is collected after it, unless that was off before.

    Only the run's own objects are searched for it: the program and its modules are frozen meanwhile. During a
    run of whole brokers garbage collection doubles the cost. Errors of objects that an aborted run has left
    open are ignored.
    """
    logging.disable(logging.CRITICAL)
    was_enabled = gc.isenabled()
    gc.disable()
    if was_enabled and collects:
        gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
            if was_enabled:
                gc.enable()
                if collects:
                    gc.collect()
                    gc.unfreeze()
