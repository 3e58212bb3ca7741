"""The process of a toxiproxy server, with its proxies, which can be started again."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from chaos.cluster_view import POLL_S
from chaos.ports import free_ports
from raftlog.testing.waits import LIMIT_S


class ServerFailed(Exception):
    """The server did not start."""


class ProxyServer:
    """A server whose proxies listen on consecutive ports of ``host``; a restart keeps the ports."""

    def __init__(self, program: Path, log: Path, host: str, upstreams: Mapping[str, str]) -> None:
        """``upstreams`` has the address behind each proxy, by the name of the proxy."""
        self._program = program
        self._log = log
        self._host = host
        self._upstreams = upstreams
        self._port = free_ports(len(upstreams) + 1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process, which runs."""
        assert self._process is not None, "the server has not been started"
        return self._process.pid

    def start(self) -> None:
        """Returns once all proxies listen. Raises ``ServerFailed``."""
        from toxiproxy import Toxiproxy

        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-port", str(self._port)],
                stdout=log,
                stderr=log,
                env={**os.environ, "LOG_LEVEL": "info"},
            )
        server = Toxiproxy()
        server.update_api_consumer("127.0.0.1", self._port)
        deadline = time.monotonic() + LIMIT_S
        while not server.running():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"the proxy server did not start: {self._log} has its output")
            time.sleep(POLL_S)
        for port, (name, upstream) in enumerate(sorted(self._upstreams.items()), self._port + 1):
            server.create(upstream=upstream, name=name, listen=f"{self._host}:{port}")

    def start_again(self) -> None:
        """End a server that may hang, and start another one. All connections end. Raises ``ServerFailed``."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """End it, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
