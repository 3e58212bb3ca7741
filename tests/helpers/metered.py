"""``metered.py SOCKET python … serve ARG …`` runs ``raftlog serve`` in this process and counts what it costs.

Decides: what counts. Each query on the socket is answered with the counts since the process began, as JSON.
``FUNCTIONS`` asks for the calls of each function, without those of ``TIMERS``. ``COUNTS`` asks for:

- ``calls``: Python functions that were called or resumed, in all threads, but for what ``TIMERS`` call;
- ``rounds``: rounds of heartbeats that began, and ``round_calls``: the calls within ``BEATS``;
- ``large``: allocations of more than 512 bytes, which the small-object allocator passes on to malloc, but for
  allocations of ``TIMERS``;
- ``large_bytes``: their sizes, added up.

Allocations are seen between two events of the profiler (calls of Python and C functions, and their returns);
the ones that are freed again before the next event count by the highest sum in between. ``calls`` does not
depend on time. Leaves to others: when to ask (``costs``).
"""

from __future__ import annotations

import importlib
import json
import runpy
import socket
import sys
import threading
import tracemalloc
from collections import Counter
from types import CodeType, FrameType
from typing import Final

COUNTS: Final = b"c"
FUNCTIONS: Final = b"f"
LARGE_BYTES: Final = 512
ROUND: Final = "GroupHost._watch_peers"
BEATS: Final = frozenset(("GroupHost._tick", "GroupHost._drain", "InboundConnection.buffer_updated"))
TIMERS: Final = frozenset(
    (
        "GroupHost._tick",
        "LoopDelay._look",
        "LoopDelay._wait",
        "LongLived._look",
        "OpenConnections._sweep",
        "Duties.keep",  # of a broker, of the controller, of reassignment, ...
        "_set_result_unless_cancelled",  # the end of a sleep
    )
)
_ROOTS: Final = BEATS | TIMERS
MEMORY: Final = ".memory"  # a socket with this ending sees memory, too; the rest is slower then


class Meter:
    """Counts of this process."""

    def __init__(self, *, is_memory_seen: bool) -> None:
        self.large = self.large_bytes = 0
        self._roots: dict[int, FrameType] = {}  # the outermost running function of ``_ROOTS``, by thread
        # By function and root. One mapping, because its copy is atomic: no call is in only one of two counts.
        self._calls: Counter[tuple[CodeType, str | None]] = Counter()
        self._size = 0
        self.note = self._note_memory if is_memory_seen else self._note_call

    def _note_call(self, frame: FrameType, event: str, arg: object) -> str | None:
        """Count a call. Return the name of the outermost running function of ``_ROOTS``."""
        thread = threading.get_ident()
        root = self._roots.get(thread)
        if event == "call":
            code = frame.f_code
            if root is None and code.co_qualname in _ROOTS:
                root = self._roots[thread] = frame
            self._calls[code, root and root.f_code.co_qualname] += 1
        elif event == "return" and frame is root:
            del self._roots[thread]
        return root and root.f_code.co_qualname

    def _note_memory(self, frame: FrameType, event: str, arg: object) -> None:
        root = self._note_call(frame, event, arg)
        size, peak = tracemalloc.get_traced_memory()
        grown = peak - self._size
        if grown > LARGE_BYTES and root not in TIMERS:
            self.large += 1
            self.large_bytes += grown
        tracemalloc.reset_peak()
        self._size = size

    def answer(self, listener: socket.socket) -> None:
        """Answer queries until the process ends."""
        while True:
            connection, _ = listener.accept()
            with connection:
                wanted = self._functions() if connection.recv(1) == FUNCTIONS else self._counts()
                connection.sendall(json.dumps(wanted).encode())

    def _counts(self) -> dict[str, int]:
        calls = self._calls.copy()
        return {
            "calls": sum(count for (_, root), count in calls.items() if root not in TIMERS),
            "rounds": sum(count for (code, _), count in calls.items() if code.co_qualname == ROUND),
            "round_calls": sum(count for (_, root), count in calls.items() if root in BEATS),
            "large": self.large,
            "large_bytes": self.large_bytes,
        }

    def _functions(self) -> dict[str, int]:
        named: Counter[str] = Counter()
        for (code, root), count in self._calls.copy().items():
            if root not in TIMERS:
                named[f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"] += count
        return named


def main() -> None:
    """See the module."""
    path, *command = sys.argv[1:]
    importlib.import_module("api.server")  # not metered: that takes several times as long
    is_memory_seen = path.endswith(MEMORY)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    meter = Meter(is_memory_seen=is_memory_seen)
    threading.Thread(target=meter.answer, args=(listener,), daemon=True).start()
    threading.setprofile(meter.note)
    if is_memory_seen:
        tracemalloc.start(1)
    sys.argv = ["raftlog", *command[command.index("serve") :]]
    sys.setprofile(meter.note)
    runpy.run_module("raftlog", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
