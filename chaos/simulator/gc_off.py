"""What every run is spared: log lines that nobody reads, and garbage collection in its midst."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(*, collects: bool = False) -> Iterator[None]:
    """For one run. With ``collects`` garbage is collected behind it, unless that was switched off before.

    In the midst of a run of whole brokers it costs as much again. What a run that was cut short has left open
    is nobody's mistake.
    """
    logging.disable(logging.CRITICAL)
    was_enabled = gc.isenabled()
    gc.disable()
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
