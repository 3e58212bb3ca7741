"""Commands that run brokers on this machine: ``dev``, ``serve`` and ``cluster init``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated

import typer

from api.addresses import RPC_PORT_STEP, is_loopback, machines
from api.cli.output import errors_reported, note, options_checked, wrong_usage
from api.cluster_files import create_cluster, create_machines, existing_brokers, settings_path
from raftlog.errors import InvalidRequest

HTTP_PORT = 7070
STOP_S = 9.0  # brokers need two or three; a person waits no longer than ten
READY_S = 60.0

DataOption = Annotated[
    Path, typer.Option("--data", help="Directory of the cluster's settings, secret and data.")
]


def serve(config: Annotated[Path, typer.Option("--config", help="The broker's TOML file.")]) -> None:
    """Run one broker until SIGTERM or Ctrl-C.

    \b
    Example:
      raftlog serve --config raftlog-data/broker-1/raftlog.toml
    """
    with errors_reported():
        from api.server import run
        from api.settings import load_settings

        code = run(load_settings(config))
    raise typer.Exit(code)


def init(
    data: DataOption = Path("raftlog-data"),
    brokers: Annotated[
        int | None, typer.Option(help="How many brokers on this machine; 1, 3 or 5 make sense.  [default: 3]")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A machine by the name or IP address that the others and the clients reach, with :PORT for "
            "another HTTP port; repeat it for each. Its folder can be copied there."
        ),
    ] = None,
    http_port: Annotated[
        int, typer.Option(help="HTTP port of the first broker, or of every host.")
    ] = HTTP_PORT,
    rpc_port: Annotated[
        int | None, typer.Option(help="Port between brokers; default: HTTP port + 100.")
    ] = None,
) -> None:
    """Make a cluster's secret and one settings file per broker; print how to start each.

    \b
    Examples:
      raftlog cluster init --data /var/lib/raftlog --brokers 3
      raftlog cluster init --host log1.example --host log2.example --host log3.example
    """
    with errors_reported():
        if host:
            if brokers is not None:
                wrong_usage("--brokers and --host exclude each other: there is one broker for each --host")
            _init_machines(data, host, http_port, rpc_port)
            return
        count = 3 if brokers is None else brokers
        for path in create_cluster(data, brokers=count, http_port=http_port, rpc_port=rpc_port):
            typer.echo(f"raftlog serve --config {path}")


def _init_machines(data: Path, given: list[str], http_port: int, rpc_port: int | None) -> None:
    with options_checked():
        found = machines(given, http_port, rpc_port)
    for broker, (machine, path) in enumerate(zip(found, create_machines(data, found), strict=True), 1):
        typer.echo(f"broker={broker} host={machine.host} http={machine.url} directory={path.parent}")
    note(
        "copy each directory to its host, and start the broker there: raftlog serve --config raftlog.toml\n"
        "the cluster answers once all of its brokers have started"
    )
    if not is_loopback(found[0].host):
        ports = sorted({port for machine in found for port in (machine.http_port, machine.rpc_port)})
        note(
            f"warning: the ports {', '.join(map(str, ports))} have neither TLS nor users; "
            "let only machines that you trust connect to them"
        )


def dev(
    brokers: Annotated[int | None, typer.Option(help="How many brokers.  [default: 3]")] = None,
    data: DataOption = Path("raftlog-data"),
    http_port: Annotated[
        int | None, typer.Option(help="HTTP port of the first broker.  [default: 7070]")
    ] = None,
) -> None:
    """Run a whole cluster on this machine, a process per broker, until Ctrl-C or SIGTERM.

    Prints a line for each broker and then `ready`. Starts again on its own data. A broker that dies
    is not restarted: start it with `raftlog serve --config` and the file that its line names.

    \b
    Example:
      raftlog dev --data /tmp/trial --http-port 8070
    """
    with errors_reported():
        if not existing_brokers(data):
            count, first = brokers or 3, http_port or HTTP_PORT
            _check_free(
                [*range(first, first + count), *range(first + RPC_PORT_STEP, first + RPC_PORT_STEP + count)]
            )
            create_cluster(data, brokers=count, http_port=first)
        code = _supervise(_existing(data, brokers, http_port))
    raise typer.Exit(code)


def _existing(data: Path, brokers: int | None, http_port: int | None) -> list[Path]:
    """The settings files of a cluster, unless it is another than was asked for."""
    from api.settings import load_settings

    ids = existing_brokers(data)
    if brokers is not None and len(ids) != brokers:
        raise InvalidRequest(
            f"{data} holds a cluster of {len(ids)} brokers; use --brokers {len(ids)} or another --data",
            field="brokers",
        )
    paths = [settings_path(data, broker_id) for broker_id in ids]
    port = load_settings(paths[0]).http.port
    if http_port is not None and port != http_port:
        raise InvalidRequest(
            f"the cluster in {data} listens on port {port}; leave out --http-port, or use another --data",
            field="http_port",
        )
    return paths


def _check_free(ports: list[int]) -> None:
    """Refuse ports that others listen on: their answers would be taken for those of our brokers."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as error:
                raise InvalidRequest(
                    f"port {port} cannot be used ({error}); stop what listens there, perhaps this cluster "
                    "itself, or start another with its own --http-port and --data",
                    field="http_port",
                ) from None


def _supervise(configs: list[Path]) -> int:
    from api.settings import load_settings

    signal.signal(signal.SIGTERM, _interrupt)
    settings = [load_settings(config) for config in configs]
    _check_free([port for values in settings for port in (values.http.port, values.rpc.port)])
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for config, values in zip(configs, settings, strict=True):
            command = [sys.executable, "-m", "api.cli", "serve", "--config", str(config)]
            processes.append(subprocess.Popen(command, start_new_session=True))
            typer.echo(
                f"broker={values.broker_id} http={values.http.url} pid={processes[-1].pid} "
                f"config={config.resolve()}"
            )
        if not _all_ready([values.http.url for values in settings], processes):
            return 1
        typer.echo("ready")
        sys.stdout.flush()
        return _watch(processes)
    except KeyboardInterrupt:
        return 0
    finally:
        _stop(processes)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _all_ready(urls: list[str], processes: list[subprocess.Popen[bytes]]) -> bool:
    deadline = time.monotonic() + READY_S
    waiting = list(urls)
    while waiting:
        for process in processes:
            if process.poll() is not None:
                note(
                    f"a broker ended with status {process.returncode} before the cluster was ready; see above"
                )
                return False
        if time.monotonic() > deadline:
            note(f"not ready after {READY_S:.0f} s: {', '.join(waiting)}")
            return False
        waiting = [url for url in waiting if not _is_ready(url)]
        time.sleep(0.05)
    return True


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _watch(processes: list[subprocess.Popen[bytes]]) -> int:
    """Wait until told to stop, or until no broker is left."""
    told: set[int] = set()
    while True:
        for process in processes:
            if process.poll() is not None and process.pid not in told:
                told.add(process.pid)
                note(f"the broker with pid {process.pid} ended with status {process.returncode}")
        if len(told) == len(processes):
            return 1
        time.sleep(0.2)


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for process in processes:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            note(f"the broker with pid {process.pid} did not stop in {STOP_S:.0f} s and is killed")
            process.kill()
            process.wait()
