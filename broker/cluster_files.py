"""Writes the initial files of a cluster: one secret, and one settings file per broker.

::

    DIR/cluster.secret               32 random bytes in hexadecimal, readable by its owner only
    DIR/broker-1/raftlog.toml        settings of broker 1
    DIR/broker-1/data/               created by the broker itself

Brokers on different machines share no directory: each has a copy of the secret beside its settings,
``DIR/broker-1/cluster.secret``. A broker that joins later has one, too, and the setting ``joined = true``.
The files of an existing cluster are never changed.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from broker.addresses import BROKERS_MAX, PORT_MAX, RPC_PORT_STEP, Machine, is_loopback
from raftlog.errors import InvalidRequest
from raftlog.storage.os_filesystem import DIRECTORY_MODE, FILE_MODE
from raftlog.wire.limits import RACK_CHARACTERS_MAX

SECRET_NAME = "cluster.secret"


def settings_path(directory: Path, broker_id: int) -> Path:
    """Path of a broker's settings file."""
    return directory / f"broker-{broker_id}" / "raftlog.toml"


def existing_brokers(directory: Path) -> list[int]:
    """Ids of the brokers whose settings are in a directory, ascending."""
    found = []
    for path in directory.glob("broker-*/raftlog.toml"):
        number = path.parent.name.removeprefix("broker-")
        if number.isdigit():
            found.append(int(number))
    return sorted(found)


def create_cluster(
    directory: Path,
    *,
    brokers: int,
    http_port: int,
    rpc_port: int | None = None,
    racks: Sequence[str] = (),
) -> list[Path]:
    """Write the secret and the settings of a new cluster on this machine; return the paths of the settings.

    Broker n listens for HTTP on ``http_port + n - 1`` and for its peers on ``rpc_port + n - 1``. The racks
    are assigned to the brokers in turn. Raises ``InvalidRequest`` if a cluster exists or a number is invalid.
    """
    local = local_machines(brokers, http_port, rpc_port)
    check_racks(racks)
    secret = _begin(directory)
    _write(directory / SECRET_NAME, secret)
    return _write_settings(directory, local, f"../{SECRET_NAME}", racks)


def local_machines(brokers: int, http_port: int, rpc_port: int | None = None) -> list[Machine]:
    """Return the addresses of the brokers of a new cluster on this machine. Raises ``InvalidRequest``."""
    rpc_base = http_port + RPC_PORT_STEP if rpc_port is None else rpc_port
    if not 1 <= brokers <= BROKERS_MAX:
        raise InvalidRequest(
            f"brokers is {brokers}; choose 1 to {BROKERS_MAX}, preferably 1, 3 or 5", field="brokers"
        )
    if not 1 <= http_port <= PORT_MAX - brokers or not 1 <= rpc_base <= PORT_MAX - brokers:
        raise InvalidRequest(
            f"ports {http_port} and {rpc_base} leave no room for {brokers} brokers", field="http_port"
        )
    return [Machine("127.0.0.1", http_port + n, rpc_base + n) for n in range(brokers)]


def create_machines(directory: Path, machines: Sequence[Machine], racks: Sequence[str] = ()) -> list[Path]:
    """Write a folder with settings and secret for each broker of a new cluster; return the settings' paths.

    A folder is self-contained, so that it can be copied to its machine. The racks are assigned to the brokers
    in turn. Raises ``InvalidRequest`` if a cluster exists.
    """
    check_racks(racks)
    secret = _begin(directory)
    paths = _write_settings(directory, machines, SECRET_NAME, racks)
    for path in paths:
        _write(path.with_name(SECRET_NAME), secret)
    return paths


def check_new(directory: Path, broker_id: int) -> None:
    """Raise ``InvalidRequest`` if the folder of a broker with this id exists."""
    path = settings_path(directory, broker_id)
    if path.parent.exists():
        raise InvalidRequest(
            f"{path.parent} exists; choose another directory or id, or delete it if the broker never ran",
            field="data",
        )


def create_joined(
    directory: Path,
    broker_id: int,
    machine: Machine,
    *,
    cluster_id: str,
    secret: bytes,
    peers: Mapping[int, tuple[str, int]],
    rack: str | None,
) -> Path:
    """Write the folder of a broker that a cluster has admitted; return the path of its settings.

    ``peers`` are the addresses of all brokers, including this one. Raises ``InvalidRequest`` if the folder
    exists.
    """
    check_new(directory, broker_id)
    path = settings_path(directory, broker_id)
    path.parent.mkdir(mode=DIRECTORY_MODE, parents=True)
    _write(path.with_name(SECRET_NAME), secret.hex() + "\n")
    _write(
        path, "joined = true\n" + _rack(rack) + _settings(cluster_id, broker_id, machine, SECRET_NAME, peers)
    )
    return path


def _begin(directory: Path) -> str:
    """Create the directory of a cluster; return a new secret for the cluster."""
    if existing_brokers(directory):
        raise InvalidRequest(
            f"{directory} already contains a cluster; start it, or choose another directory", field="data"
        )
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    return secrets.token_hex(32) + "\n"


def _rack(rack: str | None) -> str:
    """Return the line of the setting ``rack`` in a settings file; empty if the broker has no rack."""
    return "" if rack is None else f"rack = {json.dumps(rack)}\n"


def check_racks(racks: Sequence[str]) -> None:
    """Raise ``InvalidRequest`` if a rack is empty or too long."""
    for rack in racks:
        if not 0 < len(rack) <= RACK_CHARACTERS_MAX:
            raise InvalidRequest(
                f"rack is {rack[:64]!r}; give a label of 1 to {RACK_CHARACTERS_MAX} characters", field="rack"
            )


def _write_settings(
    directory: Path, machines: Sequence[Machine], secret_file: str, racks: Sequence[str]
) -> list[Path]:
    cluster_id = uuid.uuid4().hex
    peers = {n: (machine.host, machine.rpc_port) for n, machine in enumerate(machines, 1)}
    paths = []
    for broker_id, machine in enumerate(machines, 1):
        path = settings_path(directory, broker_id)
        path.parent.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        rack = racks[(broker_id - 1) % len(racks)] if racks else None
        _write(path, _rack(rack) + _settings(cluster_id, broker_id, machine, secret_file, peers))
        paths.append(path)
    return paths


def _settings(
    cluster_id: str,
    broker_id: int,
    machine: Machine,
    secret_file: str,
    peers: Mapping[int, tuple[str, int]],
) -> str:
    tables = "\n".join(f'[peers.{n}]\nhost = "{host}"\nport = {port}\n' for n, (host, port) in peers.items())
    insecure, advertised = _beyond_loopback(machine)
    return (
        f'cluster_id = "{cluster_id}"\nbroker_id = {broker_id}\n'
        f'secret_file = "{secret_file}"\ndata_directory = "data"\n{insecure}\n'
        f'[http]\nhost = "{machine.listen_host}"\nport = {machine.http_port}\n{advertised}\n'
        f'[rpc]\nhost = "{machine.listen_host}"\nport = {machine.rpc_port}\n\n{tables}'
    )


def _beyond_loopback(machine: Machine) -> tuple[str, str]:
    """Return the settings that let other machines reach a broker: top-level settings, and settings of
    ``http``.
    """
    if is_loopback(machine.host):
        return "", ""
    insecure = "insecure = true  # neither TLS nor users: for trusted networks\n"
    return insecure, f'advertised_url = "{machine.url}"\n'


def read_secret(path: Path) -> bytes:
    """Read the cluster's secret.

    Raises ``InvalidRequest`` if the file is missing, too short, not hexadecimal, or readable by others.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # reading a pipe would wait for its writer
            raise InvalidRequest(f"{path} is not a regular file", field="secret_file")
        secret = bytes.fromhex(path.read_text().strip())
    except FileNotFoundError:
        raise InvalidRequest(
            f"no cluster secret at {path}; copy it from another broker, or run `raftlog cluster init`",
            field="secret_file",
        ) from None
    except ValueError:
        raise InvalidRequest(
            f"{path} is not a cluster secret: hexadecimal digits expected", field="secret_file"
        ) from None
    if len(secret) < 16:
        raise InvalidRequest(
            f"{path} has fewer than 16 bytes; create a new cluster secret", field="secret_file"
        )
    if mode & 0o077:
        raise InvalidRequest(f"{path} can be read by others; run: chmod 600 {path}", field="secret_file")
    return secret


def _write(path: Path, text: str) -> None:
    """Write a new file that only its owner can read and write."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
