"""Runs a seed without log output and without garbage collection."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_off(*, collects: bool = False) -> Iterator[None]:
    """Switch off log output and garbage collection in the ``with`` block. With ``collects``, collect garbage
    after it, unless garbage collection was off before.

    The collection searches only objects of the run: objects of the program and its modules are frozen.
    Garbage collection would double the time of a run of whole brokers. Errors of objects that an aborted run
    has left open are ignored.
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
