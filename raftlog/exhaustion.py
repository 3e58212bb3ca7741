"""Errors that mean that the process or the machine has run out of memory, file descriptors or threads.

Such a shortage passes: work that fails because of a shortage is refused, or tried again. The error says
nothing about a file, a batch or a state: it is never recorded as damage or as a broken invariant.

Decides: which errors count as a shortage. Leaves to others: whether the work may be retried in place, or only
after its replica is opened again.
"""

from __future__ import annotations

import errno
from typing import Final

from raftlog.errors import MachineFailed, Overloaded

RETRY_MS: Final = 1000
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
_LACKS: Final = {
    **dict.fromkeys(NO_DESCRIPTOR, "no file descriptor is left"),
    errno.ENOMEM: "no memory is left",
    errno.EAGAIN: "no thread can be started",
}
_NO_THREAD: Final = "can't start new thread"  # CPython has no class for it


def exhaustion(error: BaseException | None) -> OSError | None:
    """The shortage of memory, descriptors or threads that an error means; None for other errors.

    A ``MachineFailed`` counts if its cause is a shortage.
    """
    match error:
        case OSError():
            return error if error.errno in _LACKS else None
        case MemoryError():
            return OSError(errno.ENOMEM, _LACKS[errno.ENOMEM])
        case RuntimeError() if str(error) == _NO_THREAD:
            return OSError(errno.EAGAIN, _LACKS[errno.EAGAIN])
        case MachineFailed():
            return exhaustion(error.__cause__)
    return None


def refuse_exhausted(error: Exception, cannot: str) -> None:
    """Raise ``Overloaded`` if the error is a shortage of memory, descriptors or threads; a retry may succeed.

    Nothing was done by the failed work. ``cannot`` is the start of the message: "cannot ...".
    """
    if (lack := exhaustion(error)) is not None:
        why = _LACKS[lack.errno or errno.ENOMEM]
        raise Overloaded(f"{cannot} for now: {why}; retry", retry_after_ms=RETRY_MS) from error
