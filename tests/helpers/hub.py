"""Tests in a network of their own: each runs in a process that has entered the hub of ``chaos.harness``."""

from __future__ import annotations

import ctypes
import functools
import importlib
import inspect
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.harness.namespaces import Namespaces, enter_hub, is_hub, missing

ROOT = Path(__file__).resolve().parents[2]
TEST_S = 800  # several waits may reach their limit
CLONE_NEWNET = 0x40000000


def in_hub(test: Callable[[], None]) -> Callable[[], None]:
    """Run a test in a hub, or skip it where there are no network namespaces."""

    @functools.wraps(test)
    def run() -> None:
        if reason := missing():
            pytest.skip(reason)
        done = subprocess.run(
            hub_command(test),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            text=True,
            timeout=TEST_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout

    return run


def hub_command(function: Callable[[], None]) -> list[str]:
    """The command that calls a function of a test module in a hub."""
    return [sys.executable, "-m", "tests.helpers.hub", function.__module__, function.__name__]


def namespace_path(network: Namespaces, broker: int) -> str:
    """The file that is a broker's namespace."""
    return network.command(broker)[1].removeprefix("--net=")


def socket_in(network: Namespaces, broker: int, kind: socket.SocketKind) -> socket.socket:
    """A socket in a broker's namespace, bound to its address and a free port."""
    made: list[socket.socket] = []

    def make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(namespace_path(network, broker), os.O_RDONLY)
        try:
            if libc.setns(descriptor, CLONE_NEWNET):  # for this thread; a socket stays where it was made
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(descriptor)
        made.append(socket.socket(socket.AF_INET, kind))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    made[0].bind((network.address(broker), 0))
    return made[0]


def main() -> None:
    """Call the function named on the command line, in a hub."""
    if not is_hub():
        enter_hub()
    module, name = sys.argv[1:]
    inspect.unwrap(getattr(importlib.import_module(module), name))()


if __name__ == "__main__":
    main()
