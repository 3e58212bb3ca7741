"""Runs RabbitMQ in row 9: three nodes, one quorum queue with three replicas, publisher confirms.

The server is the package of the operating system (``apt install rabbitmq-server``), the client ``aio-pika``.
A publish waits 0.5 s for its confirmation; then the next publish goes through another node. There are no
proxies between the nodes, and a leader cannot be chosen, so nodes are only killed and stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.outages import KILL, RECOVERED_S, STOP, Send
from chaos.ports import free_ports

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection, AbstractExchange

PROGRAMS: Final = Path("/usr/lib/rabbitmq/bin")
_QUEUE: Final = "outages"
_START_S: Final = 120.0
_PUBLISH_S: Final = 0.5
_LOOK_S: Final = 1.0  # each look starts a virtual machine
_CONFIGURATION: Final = """listeners.tcp.1 = 127.0.0.1:{port}
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.classic_config.nodes.1 = r0@localhost
cluster_formation.classic_config.nodes.2 = r1@localhost
cluster_formation.classic_config.nodes.3 = r2@localhost
"""


def missing() -> str | None:
    """Why RabbitMQ cannot be measured here, and the remedy; None if it can."""
    if find_spec("aio_pika") is None or not (PROGRAMS / "rabbitmq-server").exists():
        return 'RabbitMQ is not installed; apt install rabbitmq-server, pip install "raftlog[bench]"'
    return None


class RabbitOutages:
    """Three RabbitMQ nodes with one quorum queue."""

    kinds = (KILL, STOP)

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        first = free_ports(7)
        self._ports = [first + n for n in range(3)]
        self._distribution_ports = [first + 3 + n for n in range(3)]
        self._epmd_port = first + 6
        self._processes = [self._spawn(node) for node in range(3)]

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator[RabbitOutages]:
        """Run the nodes for the duration of the ``with`` block."""
        with tempfile.TemporaryDirectory(prefix="rabbitmq-outages-") as name:
            system = cls(Path(name))
            try:
                system._until_clustered()
                asyncio.run(system._declare())
                yield system
            finally:
                system.stop()

    def stop(self) -> None:
        """End all processes, including the port mapper."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for _ in range(50):  # the port mapper refuses until it has noticed the end of all nodes
            done = subprocess.run(
                ["epmd", "-kill"], env=self._environment(0), capture_output=True, check=False
            )
            if not done.returncode:
                return
            time.sleep(0.1)

    def wait_healthy(self) -> None:
        """Wait until all three members of the queue are online; see ``Replicated``."""
        deadline = time.monotonic() + RECOVERED_S
        while len(self._online()) < 3:
            if time.monotonic() > deadline:
                raise RuntimeError(f"RabbitMQ is not healthy after {RECOVERED_S:g} s")
            time.sleep(_LOOK_S)

    @contextlib.contextmanager
    def client(self) -> Iterator[Send]:
        """Yield a function that publishes one message; see ``Replicated``."""
        with asyncio.Runner() as runner:
            publisher = _Publisher([f"amqp://guest:guest@127.0.0.1:{port}/" for port in self._ports])
            yield lambda number: runner.run(publisher.publish())
            runner.run(publisher.close())

    @contextlib.contextmanager
    def failing(self, kind: str, trial: int) -> Iterator[None]:
        """Kill or stop the queue's leader, and restore it after the block; see ``Replicated``."""
        leader = self._leader()
        if kind == KILL:
            os.killpg(self._processes[leader].pid, signal.SIGKILL)
            self._processes[leader].wait()
        else:
            os.killpg(self._processes[leader].pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if kind == KILL:
                self._processes[leader] = self._spawn(leader)
            else:
                os.killpg(self._processes[leader].pid, signal.SIGCONT)

    def _environment(self, node: int) -> dict[str, str]:
        home = self._directory / f"r{node}"
        return os.environ | {
            "HOME": str(home),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"r{node}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_ports[node]),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-setcookie raftlog"
            " -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _spawn(self, node: int) -> subprocess.Popen[bytes]:
        home = self._directory / f"r{node}"
        home.mkdir(exist_ok=True)
        (home / "rabbitmq.conf").write_text(_CONFIGURATION.format(port=self._ports[node]))
        with (home / "output").open("ab") as output:
            return subprocess.Popen(
                [str(PROGRAMS / "rabbitmq-server")],
                env=self._environment(node),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _until_clustered(self) -> None:
        deadline = time.monotonic() + _START_S
        while self._control("rabbitmqctl", "eval", "length(rabbit_nodes:all_running()).").strip() != "3":
            if time.monotonic() > deadline:
                raise RuntimeError("RabbitMQ did not form a cluster")
            time.sleep(_LOOK_S)

    def _control(self, program: str, *arguments: str) -> str:
        """Run a control command on a node that answers; return its output, empty if no node answers."""
        for node in range(3):
            command = [
                *(str(PROGRAMS / program), "-q", "--erlang-cookie", "raftlog"),
                *("-n", f"r{node}@localhost", "-t", "5", *arguments),
            ]
            done = subprocess.run(
                command, env=self._environment(node), capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                return done.stdout
        return ""

    def _leader(self) -> int:
        rows = self._control("rabbitmqctl", "list_queues", "--no-table-headers", "leader").split()
        return int(rows[0][1])

    def _online(self) -> list[str]:
        found = self._control("rabbitmqctl", "list_queues", "--no-table-headers", "online")
        return [node for node in found.strip(" []\n").split(",") if node.strip()]

    async def _declare(self) -> None:
        import aio_pika

        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{self._ports[0]}/")
        async with connection:
            channel = await connection.channel()
            await channel.declare_queue(_QUEUE, durable=True, arguments={"x-queue-type": "quorum"})


class _Publisher:
    def __init__(self, urls: list[str]) -> None:
        self._urls = cycle(urls)
        self._connection: AbstractConnection | None = None
        self._exchange: AbstractExchange | None = None

    async def publish(self) -> None:
        """Publish a message, confirmed by a majority. After a failure the next message uses another node."""
        import aio_pika

        message = aio_pika.Message(b"x" * 10, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        try:
            async with asyncio.timeout(_PUBLISH_S):
                if self._exchange is None:
                    self._connection = await aio_pika.connect(next(self._urls))
                    channel = await self._connection.channel(publisher_confirms=True)
                    self._exchange = channel.default_exchange
                await self._exchange.publish(message, _QUEUE)
        except Exception:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection, in 50 ms at most: its node may be stopped."""
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(0.05):
                    await connection.close()
