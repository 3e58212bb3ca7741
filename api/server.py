"""Runs one broker as a process: data directory, sockets, signals, exit status.

Decides: the order of starting and stopping, and the exit status: 0 after a stop signal, 1 if it could not
start, 70 if an invariant was broken, 71 if the process had no memory or thread left. If its disk is an older
copy, a broker starts again in the same process.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence

from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector

from api.app import RequestPipeline
from api.connections.http_connections import HttpConnections
from api.stop_signals import Terminal, stop_signals
from broker.archived_reads import Archive, open_archive
from broker.broker import Broker, BrokerEnvironment, syncs_of_process
from broker.cluster_files import read_secret
from broker.listeners.connection_limit import ConnectionLimit
from broker.listeners.listener import Listener
from broker.listeners.tls import TlsContext, TlsFiles
from broker.listeners.tls_reloads import TlsReloads
from broker.process import freed_memory
from broker.process.descriptors import Descriptors, share_out
from broker.process.log_queue import LogLines
from broker.process.long_lived import LongLived
from broker.process.loop_delay import LoopDelay
from broker.serving import services_of
from broker.settings import BrokerSettings
from raftlog.clock import SystemClock
from raftlog.errors import LogCorrupt, RaftlogError
from raftlog.exhaustion import exhaustion
from raftlog.node.flusher import RunSyncs
from raftlog.node.network.tcp_links import TransportLimits
from raftlog.node.network.tcp_transport import TcpTransport
from raftlog.storage.data_directory import DataDirectory, DataDirectoryRefused
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.types import NodeId

_log = logging.getLogger("raftlog.server")

Equip = Callable[[BrokerEnvironment], BrokerEnvironment]

EXIT_BROKEN = 70
EXIT_EXHAUSTED = 71
HTTP_STOP_S = 2.0
TERMINAL_LOOK_S = 30.0
# Time for which a computing thread may keep the interpreter from the event loop; Python's default is 5 ms.
TURN_S = 0.001


def run(settings: BrokerSettings) -> int:
    """Run one broker until a signal stops it; return the exit status."""
    from broker.process.logs import (
        configure_logs,  # imported here: a broker of the testing kit has other logs, and starts sooner
    )

    freed_memory.use_again()
    configure_logs(settings.log_level, settings.broker_id, settings.log_format)
    return run_in(settings, lambda machine: machine)


def run_in(settings: BrokerSettings, equip: Equip) -> int:
    """Run one broker until a signal stops it; return the exit status.

    ``equip`` turns the environment of this machine into the environment of the broker; it is called on the
    event loop.
    """
    sys.setswitchinterval(TURN_S)  # after each system call the loop must get the interpreter back soon
    descriptors = share_out(settings.limits.connections_max)
    try:
        secret = read_secret(settings.secret_file)
        location = settings.archive.location
        archive = None if location is None else open_archive(location)
        tls = None if settings.https is None else TlsContext.of(TlsFiles.of(settings.https))
        directory = DataDirectory.open(
            str(settings.data_directory), cluster_id=settings.cluster_id, node_id=NodeId(settings.broker_id)
        )
    except (DataDirectoryRefused, RaftlogError, OSError) as error:
        _log.error("cannot start: %s", error)
        return 1
    syncs = syncs_of_process()  # its threads and its place in the kernel live as long as the process
    try:
        while _run_loop(_serve(settings, secret, descriptors, syncs, equip, archive, tls)):
            _log.warning("starting again")
        return 0
    except (OSError, LogCorrupt, RaftlogError) as error:
        _log.error("cannot start: %s", error)
        return 1
    except (MemoryError, RuntimeError) as error:
        if (lack := exhaustion(error)) is None:
            raise
        _log.error("cannot run: %s", lack)
        return 1
    finally:
        directory.close()


def _run_loop(main: Coroutine[None, None, bool]) -> bool:
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.run(main)
    return bool(uvloop.run(main))


async def _serve(
    settings: BrokerSettings,
    secret: bytes,
    descriptors: Descriptors,
    syncs: RunSyncs,
    equip: Equip,
    archive: Archive | None,
    tls: TlsContext | None,
) -> bool:
    """Serve until a signal comes; return whether the broker must start again at once."""
    ending = _Ending()
    environment = equip(_environment(settings, secret, descriptors, syncs, ending.begin_again))
    broker = Broker(settings, environment, str(settings.data_directory), settings.http_url)
    services = services_of(broker, environment.rng, archive)
    ProcessCollector(registry=services.registry)
    PlatformCollector(registry=services.registry)
    services.registry.register(LogLines())
    warn_if_insecure(settings.listeners_beyond_loopback, services.registry)
    pipeline = RequestPipeline(services)
    client_max = settings.limits.connections_client_max
    limit = ConnectionLimit("HTTP", descriptors.connections_max, client_max, pipeline.metrics)
    age_max_s = math.inf if settings.https is None else settings.https.connection_age_max_ms / 1000
    connections = HttpConnections(pipeline, limit, tls_age_max_s=age_max_s)
    listener = Listener(connections, limit, shutdown_timeout_s=HTTP_STOP_S)
    ending.reloads = reloads = None if tls is None else TlsReloads(tls, services.registry)
    delay, returning = LoopDelay(services.registry), freed_memory.Returning()
    long_lived = LongLived(lambda: (broker.host.groups_opened, len(broker.host.groups)))
    try:
        if await _started(broker, ending.asked):
            if settings.http.enabled:
                await listener.start(settings.http.host, settings.http.port)
            if settings.https is not None and tls is not None and reloads is not None:
                await listener.start_tls(settings.https.host, settings.https.port, tls, reloads)
            long_lived.set_apart()
            _log.info(
                "serving %s", " and ".join(url for url in (settings.http_url, settings.https_url) if url)
            )
            await ending.asked.wait()
            _log.info("stopping")
            if not ending.is_older_copy:
                await broker.drain()
    finally:
        delay.stop()
        returning.stop()
        long_lived.stop()
        if reloads is not None:
            reloads.stop()
        await listener.stop()
        await services.archive.stop()
        await broker.stop()
        ending.close()
    return ending.is_older_copy


def warn_if_insecure(beyond: Sequence[str], registry: CollectorRegistry) -> None:
    """Say in the log and in a metric whether other machines reach this broker, which has no users yet.

    ``beyond`` has the sections of the listeners that other machines reach.
    """
    Gauge(
        "raftlog_insecure", "1 if other machines reach a listener without authentication.", registry=registry
    ).set(bool(beyond))
    if beyond:
        hosts = " or ".join(f"{name}.host" for name in beyond)
        _log.warning("insecure: any machine that reaches %s can read and change all data", hosts)


class _Ending:
    """The end of a broker: a signal asks for it, or a disk that is an older copy, after which the broker
    starts again.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.is_older_copy = False
        self.reloads: TlsReloads | None = None
        self._terminal = Terminal()
        self._signals = stop_signals()
        self._loop = loop = asyncio.get_running_loop()
        self._look_handle = loop.call_later(TERMINAL_LOOK_S, self._look)
        for number in self._signals:
            # The loop would remove its own handlers at its end, and a signal would then kill the process.
            act = self._hang_up if number == signal.SIGHUP else self._stop
            signal.signal(number, lambda *_, act=act: loop.call_soon_threadsafe(act))

    def begin_again(self) -> None:
        """End because the disk is an older copy, unless the end was asked for already."""
        if not self.asked.is_set():
            self.is_older_copy = True
            self.asked.set()

    def close(self) -> None:
        """Ignore further signals, or let them end the process until the broker has started again."""
        self._look_handle.cancel()
        for number in self._signals:
            signal.signal(number, signal.SIG_DFL if self.is_older_copy else signal.SIG_IGN)

    def _look(self) -> None:
        self._terminal.look()
        self._look_handle = self._loop.call_later(TERMINAL_LOOK_S, self._look)

    def _stop(self) -> None:
        self.is_older_copy = False
        self.asked.set()

    def _hang_up(self) -> None:
        """Load the TLS files again, as services do at SIGHUP; stop if the terminal was closed."""
        if self.reloads is None or self._terminal.is_lost:
            self._stop()
        else:
            self.reloads.reload_soon()


async def _started(broker: Broker, stop: asyncio.Event) -> bool:
    """Start the broker; return False if a signal comes first. Without the signal, a start may wait without
    end for other brokers.
    """
    starting, stopped = asyncio.create_task(broker.start()), asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if starting.done():
        starting.result()
        return True
    _log.info("the broker stops before it has started")
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    return False


def _environment(
    settings: BrokerSettings,
    secret: bytes,
    descriptors: Descriptors,
    syncs: RunSyncs,
    begin_again: Callable[[], None],
) -> BrokerEnvironment:
    clock = SystemClock()
    rng = random.SystemRandom()  # of the kernel: ids of leases or messages must not be predictable
    transport = TcpTransport(
        NodeId(settings.broker_id),
        settings.cluster_id,
        secret,
        settings.rpc.host,
        settings.rpc.port,
        rng=random.Random(rng.getrandbits(64)),
        clock=clock,
        limits=TransportLimits(queue_bytes_max=settings.limits.peer_queue_bytes_max),
    )
    return BrokerEnvironment(
        filesystem=OsFilesystem(descriptors.held_files_max),
        clock=clock,
        transport=transport,
        secret=secret,
        rng=rng,
        run_syncs=syncs,
        on_fatal=_end_process,
        on_older_copy=begin_again,
    )


def _end_process(error: BaseException) -> None:
    """Exit at once, so that the wrong state of a broken invariant has no further effect."""
    lack = exhaustion(error)
    why = "an invariant is broken" if lack is None else "a resource is exhausted; nothing is damaged"
    _log.critical("%s; this process exits: %s", why, lack or error, exc_info=error)
    logging.shutdown()
    os._exit(EXIT_BROKEN if lack is None else EXIT_EXHAUSTED)
