"""Which errors mean that the process or the machine has run out of something.

Memory, file descriptors and threads come back: work that fails for lack of them is refused, or tried again.
Such an error says nothing about a file, a batch or a state: it is never noted as damage, nor as a broken
invariant.

Decides: which errors these are. Leaves to others: whether the work may be tried again where it is, or only by
a replica that is opened again.
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
    """The lack of memory, descriptors or threads as an ``OSError``; None for every other error.

    A state machine that has failed for a lack of them counts, too.
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
    """Raise ``Overloaded`` if an error is an exhaustion: nothing was done, and a later try may succeed.

    ``cannot`` says what the broker cannot do.
    """
    if (lack := exhaustion(error)) is not None:
        why = _LACKS[lack.errno or errno.ENOMEM]
        raise Overloaded(f"{cannot} for now: {why}; retry", retry_after_ms=RETRY_MS) from error
