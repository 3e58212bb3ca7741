"""Ports for test clusters: no two processes are given the same, although nothing listens on them yet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from broker.addresses import RPC_PORT_STEP
from chaos import ports
from chaos.ports import free_ports, release

MANY = 26  # of a proxy server for five brokers

HOLDER = """
import sys
from chaos.ports import free_ports
print(*(free_ports(3) for _ in range(20)), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """Another process that has chosen ports and does not listen."""
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def numbers(first: int, how_many: int) -> set[int]:
    return {port + step for port in range(first, first + how_many) for step in (0, RPC_PORT_STEP)}


def test_no_port_is_given_twice_until_it_is_released() -> None:
    chosen = [(free_ports(count), count) for count in (3, 1, MANY, 3)]
    try:
        all_ports = [port for first, count in chosen for port in numbers(first, count)]
        assert len(all_ports) == len(set(all_ports))
    finally:
        for first, count in chosen:
            release(first, count)


def test_processes_exclude_one_another_and_the_end_of_one_gives_its_ports_back(
    other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert other.stdout is not None
    theirs = {port for first in map(int, other.stdout.readline().split()) for port in numbers(first, 3)}
    assert len(theirs) == 120
    with monkeypatch.context() as same_order:
        same_order.setattr("os.getpid", lambda: other.pid)  # begin where the other process began
        first = free_ports(3)
        assert not numbers(first, 3) & theirs
        release(first, 3)
        other.kill()
        other.wait()
        again = free_ports(3)
        assert again in theirs
        release(again, 3)


def test_a_port_that_another_program_has_is_left_out() -> None:
    first = free_ports(2)
    release(first, 2)
    with ports.socket.socket() as program:
        program.bind(("127.0.0.1", first))
        found = free_ports(2)
        try:
            assert found != first
        finally:
            release(found, 2)
