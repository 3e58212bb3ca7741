"""Decoders of bodies, on many threads at once."""

from __future__ import annotations

import subprocess
import sys

STRUCTS = """
from __future__ import annotations
import msgspec
class Inner(msgspec.Struct):
    a: int = 0
    b: str = ""
    c: list[int] = []
    d: dict[str, int] = {}
class Outer(msgspec.Struct):
    x: Inner
    y: list[Inner]
    z: int | None = None
    w: tuple[str, ...] = ()
"""
PROGRAM = """
import sys, threading, types
from raftlog.wire.decoding import decoder_of
sys.setswitchinterval(1e-6)
for number in range(400):
    module = sys.modules[f"structs{number}"] = types.ModuleType(f"structs{number}")
    exec(sys.argv[1], module.__dict__)
    together = threading.Barrier(3)
    def decode():
        together.wait()
        decoder_of(module.Outer).decode(b'{"x":{"a":1,"c":[1],"d":{"k":1}},"y":[{"a":2}],"z":3}')
    threads = [threading.Thread(target=decode) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_threads_decode_a_struct_for_the_first_time_together() -> None:
    """Without ``decoder_of`` such a process ends with SIGSEGV, nearly always among the first structs."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM, STRUCTS], check=False, capture_output=True)
    assert ended.returncode == 0, ended.stderr
