"""Commands that let a new broker into a cluster: ``cluster token`` and ``cluster join``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

from api.cli.connection import connected
from api.cli.output import DEFAULT_SERVER, ServerOption, errors_reported, note, options_checked, printed
from api.cli.parameters import Argument, Option
from broker.addresses import PORT_MAX, Machine, machines
from raftlog.errors import InvalidRequest, JoinRefused, RaftlogError

if TYPE_CHECKING:
    from raftlog.wire.joining import AdmitBroker, BrokerAdmitted


def token(server: ServerOption = DEFAULT_SERVER) -> None:
    """Print a token with which a broker can join within an hour.

    The new broker also needs the cluster's secret.

    \b
    Example:
      raftlog cluster token --server http://log1.example:7070
    """
    with errors_reported(), connected(server) as client:
        token = client.cluster.join_token().token
        printed(token, token=token)


def join(
    token: Annotated[str, Argument(help="The token that `raftlog cluster token` printed.")],
    secret_file: Annotated[
        Path, Option(help="The cluster's secret: a copy of cluster.secret of one of its brokers.")
    ],
    host: Annotated[
        str,
        Option(
            help=(
                "Address of this machine: a name or IP address that brokers and clients can reach, with "
                ":PORT for another HTTP port."
            )
        ),
    ],
    data: Annotated[
        Path, Option("--data", help="Directory for the broker's folder, which must not exist.")
    ] = Path("raftlog-data"),
    broker: Annotated[
        int | None, Option(min=1, help="The broker's id; by default the lowest unused id.")
    ] = None,
    http_port: Annotated[int, Option(min=1, max=PORT_MAX, help="HTTP port.")] = 7070,
    rpc_port: Annotated[
        int | None, Option(min=1, max=PORT_MAX, help="Port between brokers.  [default: HTTP port + 100]")
    ] = None,
    rack: Annotated[
        str | None,
        Option(help="The broker's rack or data centre: replicas of a partition are spread over racks."),
    ] = None,
    replace: Annotated[
        bool, Option(help="Take the id --broker of a broker that is down permanently.")
    ] = False,
    server: Annotated[
        str | None,
        Option("--server", "-s", help="The address of any broker; default: the addresses in the token."),
    ] = None,
) -> None:
    """Let a new broker into a cluster and write its settings; print the command that starts it.

    Run this command on the machine of the new broker, and then start the broker. After an error, repeat the
    command with the same token and options: they admit the same broker.

    \b
    Example:
      raftlog cluster join raftlog-join.eyJ... --secret-file cluster.secret --host log4.example
    """
    with errors_reported(changing=True):
        if replace and broker is None:
            raise InvalidRequest(
                "replace needs the id of the broker that is replaced: give --broker", field="replace"
            )
        with options_checked():
            machine = _machine(host, http_port, rpc_port)
        joining = _Joining(token.strip(), secret_file, machine, broker, rack, replace, server)
        admitted, path = _join(joining, data)
        place = {"host": machine.host, "http": machine.url, "directory": str(path.parent)}
        text = " ".join(f"{name}={value}" for name, value in {"broker": admitted.broker_id, **place}.items())
        printed(text, broker=admitted.broker_id, **place)
    note(f"start the broker: raftlog serve --config {path}")


@dataclass(frozen=True, slots=True)
class _Joining:
    """The options of ``cluster join`` about the new broker."""

    token: str
    secret_file: Path
    machine: Machine
    broker: int | None
    rack: str | None
    replaces: bool
    server: str | None


def _join(joining: _Joining, data: Path) -> tuple[BrokerAdmitted, Path]:
    """Admit the broker and write its files; return the cluster's response, and the path of the settings."""
    from broker.cluster_files import check_new, create_joined, read_secret
    from raftlog.wire.joining import AdmitBroker, is_signed, read_token, with_proof

    content, secret = read_token(joining.token), read_secret(joining.secret_file)
    if not is_signed(joining.token, secret):
        raise JoinRefused(
            f"{joining.secret_file} is not the secret of the cluster that issued the token; copy "
            "cluster.secret from one of its brokers"
        )
    if joining.broker is not None:
        check_new(data, joining.broker)
    request = AdmitBroker(
        token=joining.token,
        proof="",
        admission_id="",
        host=joining.machine.host,
        port=joining.machine.rpc_port,
        http=joining.machine.url,
        broker_id=joining.broker,
        rack=joining.rack,
        replace=joining.replaces,
    )
    request = structs.replace(request, admission_id=_admission_id(request))
    admitted = _admitted(joining.server or ",".join(content.urls), with_proof(request, secret))
    path = create_joined(
        data,
        admitted.broker_id,
        joining.machine,
        cluster_id=admitted.cluster_id,
        secret=secret,
        peers={each.broker_id: (each.host, each.port) for each in admitted.peers},
        rack=joining.rack,
    )
    return admitted, path


def _admission_id(request: AdmitBroker) -> str:
    """Return the admission id for a token and options. Repeated commands have equal ids, so the cluster
    admits one broker.
    """
    return hashlib.sha256(msgspec.json.encode(request)).hexdigest()[:32]


def _machine(host: str, http_port: int, rpc_port: int | None) -> Machine:
    return machines([host], http_port, rpc_port)[0]


def _admitted(server: str, request: AdmitBroker) -> BrokerAdmitted:
    with connected(server) as client:
        try:
            return client.brokers.admit(request)
        except RaftlogError as error:
            if not error.is_definite:
                note("repeat the command with the same token and options: it admits no second broker")
            raise
