"""Commands that run brokers on this machine: ``dev``, ``serve`` and ``cluster init``."""

from __future__ import annotations

import enum
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated

import click

from api.cli.output import (
    errors_reported,
    is_json,
    note,
    options_checked,
    printed_now,
    write_json_line,
    wrong_usage,
)
from api.cli.parameters import Option
from api.stop_signals import stop_signals, stop_with_stdin
from broker.addresses import PORT_MAX, Machine, is_loopback, machines
from broker.cluster_files import (
    create_cluster,
    create_machines,
    existing_brokers,
    local_machines,
    settings_path,
)
from raftlog.__main__ import COMMAND
from raftlog.errors import InvalidRequest
from raftlog.units import counted
from raftlog.wire import health

HTTP_PORT = 7070
STOP_S = 9.0  # brokers need two or three seconds; a user waits at most ten
READY_S = 60.0
_READY_TIMEOUT_S = 2.0  # timeout of one request

RackOption = Annotated[
    list[str] | None,
    Option(
        "--rack",
        metavar="RACK",
        help="A rack or data centre; repeatable. Brokers get racks in turn; replicas are spread over racks.",
    ),
]
DataOption = Annotated[Path, Option("--data", help="Directory of the cluster's settings, secret and data.")]


class LogFormat(enum.StrEnum):
    """The formats of the broker's log: the values of the setting ``log_format``."""

    TEXT = "text"
    JSON = "json"


def serve(
    config: Annotated[Path, Option("--config", help="The broker's TOML file.")],
    with_stdin: Annotated[
        bool,
        Option(
            help="Also stop when standard input ends, because the program that started the broker has ended."
        ),
    ] = False,
    log_format: Annotated[
        LogFormat | None,
        Option("--log-format", help="Format of the log's lines.  [default: log_format of the file]"),
    ] = None,
) -> None:
    """Run one broker until SIGTERM or Ctrl-C, or until its terminal is closed.

    \b
    Example:
      raftlog serve --config raftlog-data/broker-1/raftlog.toml
    """
    with errors_reported():
        from api.server import run
        from broker.settings import load_settings

        settings = load_settings(config)
        if log_format is not None:
            settings = settings.model_copy(update={"log_format": log_format})
        if is_json():
            write_json_line({"broker": settings.broker_id, "http": settings.http_url or settings.https_url})
        if with_stdin:
            stop_with_stdin()
        code = run(settings)
        raise click.exceptions.Exit(code)


def init(
    data: DataOption = Path("raftlog-data"),
    brokers: Annotated[
        int | None,
        Option(min=1, help="Number of brokers on this machine, preferably 1, 3 or 5.  [default: 3]"),
    ] = None,
    host: Annotated[
        list[str] | None,
        Option(
            help=(
                "Address of a broker's machine: a name or IP address that brokers and clients can reach, "
                "with :PORT for another HTTP port; repeatable. Copy its folder to that machine."
            )
        ),
    ] = None,
    per_host: Annotated[
        int | None,
        Option(
            min=1,
            help=(
                "Brokers on each host, with consecutive ports. Replicas of "
                "a partition are on different hosts.  [default: 1]"
            ),
        ),
    ] = None,
    http_port: Annotated[
        int, Option(min=1, max=PORT_MAX, help="HTTP port of the first broker, or of every host.")
    ] = HTTP_PORT,
    rpc_port: Annotated[
        int | None, Option(min=1, max=PORT_MAX, help="Port between brokers.  [default: HTTP port + 100]")
    ] = None,
    rack: RackOption = None,
) -> None:
    """Create a cluster's secret and one settings file per broker; print the commands that start them.

    \b
    Examples:
      raftlog cluster init --data /var/lib/raftlog --brokers 3
      raftlog cluster init --host log1.example --host log2.example --host log3.example \
        --rack east --rack west --rack north
      raftlog cluster init --host 10.0.0.1 --host 10.0.0.2 --host 10.0.0.3 --per-host 4
    """
    with errors_reported():
        if host:
            if brokers is not None:
                wrong_usage("--brokers and --host exclude each other: each --host is one broker")
            _init_machines(data, host, per_host or 1, http_port, rpc_port, rack or [])
            return
        if per_host is not None:
            wrong_usage("--per-host needs --host; for brokers on this machine only, use --brokers")
        count = 3 if brokers is None else brokers
        paths = create_cluster(data, brokers=count, http_port=http_port, rpc_port=rpc_port, racks=rack or [])
        with errors_reported(changing=True):
            for path in paths:
                printed_now(f"raftlog serve --config {path}", config=str(path))


def _init_machines(
    data: Path, given: list[str], per_host: int, http_port: int, rpc_port: int | None, labels: list[str]
) -> None:
    with options_checked():
        found = machines(given, http_port, rpc_port, per_host=per_host)
    if per_host > 1 and not labels:
        labels = [machine.host for machine in found[: len(given)]]  # brokers of one host fail together
    # The hosts repeat in the list, and racks are assigned in turn: each host gets its own rack each time.
    racks = list(islice(cycle(labels), len(given)))
    paths = create_machines(data, found, racks)
    with errors_reported(changing=True):
        for broker, (machine, path) in enumerate(zip(found, paths, strict=True), 1):
            text = f"broker={broker} host={machine.host} http={machine.url} directory={path.parent}"
            place = {"host": machine.host, "http": machine.url, "directory": str(path.parent)}
            printed_now(text, broker=broker, **place)
    note(
        "copy each directory to its host, and start the broker there: raftlog serve --config raftlog.toml\n"
        "the cluster serves requests once all of its brokers have started"
    )
    if not is_loopback(found[0].host):
        ports = sorted(set(_ports(found)))
        note(
            f"warning: the ports {', '.join(map(str, ports))} have neither TLS nor users; "
            "let only machines that you trust connect to them"
        )


def dev(
    brokers: Annotated[int | None, Option(min=1, help="Number of brokers.  [default: 3]")] = None,
    data: DataOption = Path("raftlog-data"),
    http_port: Annotated[
        int | None, Option(min=1, max=PORT_MAX, help="HTTP port of the first broker.  [default: 7070]")
    ] = None,
    rack: RackOption = None,
) -> None:
    """Run a whole cluster on this machine, a process per broker, until Ctrl-C or SIGTERM.

    The brokers also stop when the terminal is closed, or when this program is killed.

    Prints a line for each broker and then `ready`. A later run uses the existing data. A broker that ends is
    not restarted: start it with `raftlog serve --config` and the file in its line.

    \b
    Example:
      raftlog dev --data /tmp/trial --http-port 8070
    """
    with errors_reported(), StopSignal() as stop:
        if not existing_brokers(data):
            count, first = brokers or 3, http_port or HTTP_PORT
            _check_free(_ports(local_machines(count, first)))
            create_cluster(data, brokers=count, http_port=first, racks=rack or [])
        code = _supervise(_existing(data, brokers, http_port, rack), stop)
        raise click.exceptions.Exit(code)


def _existing(data: Path, brokers: int | None, http_port: int | None, racks: list[str] | None) -> list[Path]:
    """Return the settings files of the cluster in ``data``. Raises an error if the cluster has other
    parameters than requested.
    """
    from broker.settings import load_settings

    ids = existing_brokers(data)
    if brokers is not None and len(ids) != brokers:
        raise InvalidRequest(
            f"{data} contains a cluster of {counted(len(ids), 'broker')}; "
            f"use --brokers {len(ids)} or another --data",
            field="brokers",
        )
    paths = [settings_path(data, broker_id) for broker_id in ids]
    port = load_settings(paths[0]).http.port
    if http_port is not None and port != http_port:
        raise InvalidRequest(
            f"the cluster in {data} listens on port {port}; omit --http-port, or use another --data",
            field="http_port",
        )
    for number, path in enumerate(paths):
        found = load_settings(path).rack
        wanted = racks[number % len(racks)] if racks else found
        if found != wanted:
            raise InvalidRequest(
                f"broker {ids[number]} of the cluster in {data} has the rack {found!r}, not {wanted!r}; omit "
                f"--rack, or change rack in {path}",
                field="rack",
            )
    return paths


def _ports(found: Sequence[Machine]) -> list[int]:
    return [port for machine in found for port in (machine.http_port, machine.rpc_port)]


def _check_free(ports: list[int]) -> None:
    """Refuse ports that another program uses: its responses would be taken for responses of the new
    brokers.
    """
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise InvalidRequest(
                    f"port {port} cannot be used ({error}); stop the program that listens there, perhaps "
                    "this cluster itself, or start another cluster with its own --http-port and --data",
                    field="http_port",
                ) from None


class StopSignal:
    """Notes whether Ctrl-C, SIGTERM or the end of the terminal has come.

    A signal does not interrupt the code, which checks this object instead: an exception between two steps
    could leave brokers running.
    """

    def __init__(self) -> None:
        self.has_come = False

    def __enter__(self) -> StopSignal:
        self._handlers = {number: signal.signal(number, self._note) for number in stop_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            # Later signals have no effect, even at the end of the interpreter.
            signal.signal(number, signal.SIG_IGN if self.has_come else handler)

    def _note(self, signum: int, frame: object) -> None:
        self.has_come = True


@dataclass(frozen=True, slots=True)
class Started:
    """A broker that was started, and its process."""

    broker_id: int
    url: str
    config: Path
    process: subprocess.Popen[bytes]

    @property
    def has_ended(self) -> bool:
        """Whether the broker's process has ended."""
        return self.process.poll() is not None

    @property
    def end(self) -> str:
        """A message that says how the broker ended, and how to start it again."""
        status = self.process.returncode
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        command = shlex.join(["raftlog", "serve", "--config", str(self.config)])
        return f"broker {self.broker_id} {how}; start it with: {command}"


def _supervise(configs: list[Path], stop: StopSignal) -> int:
    from broker.settings import load_settings

    settings = [load_settings(config) for config in configs]
    _check_free([port for values in settings for port in (values.http.port, values.rpc.port)])
    started: list[Started] = []
    try:
        for config, values in zip(configs, settings, strict=True):
            command = [*COMMAND, "serve", "--config", str(config), "--with-stdin"]
            # This process never writes to the pipe; the pipe ends with this process, however it ends.
            process = subprocess.Popen(command, start_new_session=True, stdin=subprocess.PIPE)
            started.append(Started(values.broker_id, values.http.url, config.resolve(), process))
            shown = {
                "broker": values.broker_id,
                "http": values.http.url,
                "pid": process.pid,
                "config": str(config.resolve()),
            }
            printed_now(" ".join(f"{name}={value}" for name, value in shown.items()), **shown)
        if not _all_ready(started, stop):
            return 0 if stop.has_come else 1
        printed_now("ready", ready=True)
        return _watch(started, stop)
    finally:
        _stop(started)


def _all_ready(started: list[Started], stop: StopSignal) -> bool:
    deadline = time.monotonic() + READY_S
    waiting = list(started)
    while waiting and not stop.has_come:
        for broker in started:
            if broker.has_ended:
                note(f"{broker.end}\nits last log lines are above; the cluster was not ready and is stopped")
                return False
        if time.monotonic() > deadline:
            note(f"not ready after {READY_S:.0f} s: {', '.join(broker.url for broker in waiting)}")
            return False
        waiting = [broker for broker in waiting if not _is_ready(broker.url)]
        time.sleep(0.05)
    return not stop.has_come


def _is_ready(url: str) -> bool:
    """Return whether a broker accepts requests. The check ignores the proxies in environment variables."""
    from http.client import HTTPException

    from api.cli.reading import answer_of, opened

    try:
        with closing(opened(url, _READY_TIMEOUT_S)) as http:
            return answer_of(http, health.READY.path, _READY_TIMEOUT_S).status == 200
    except (OSError, HTTPException):
        return False


def _watch(started: list[Started], stop: StopSignal) -> int:
    """Wait for a signal, or until no broker runs; return the exit code."""
    running = list(started)
    while running and not stop.has_come:
        for broker in running:
            if broker.has_ended:
                note(broker.end)
        running = [broker for broker in running if broker.process.returncode is None]
        time.sleep(0.1)
    return 0 if running else 1


def _stop(started: list[Started]) -> None:
    for broker in started:
        broker.process.terminate()
    deadline = time.monotonic() + STOP_S
    for broker in started:
        try:
            broker.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            note(f"broker {broker.broker_id} did not stop in {STOP_S:.0f} s and is killed")
            broker.process.kill()
            broker.process.wait()
