"""The files that a cluster starts from: one secret, and one settings file per broker.

::

    DIR/cluster.secret               32 random bytes in hexadecimal, readable by its owner only
    DIR/broker-1/raftlog.toml        settings of broker 1
    DIR/broker-1/data/               made by the broker itself

Decides: names, ports and the cluster id of a new cluster. An existing cluster is never changed.
"""

from __future__ import annotations

import os
import secrets
import stat
import uuid
from pathlib import Path

from raftlog.errors import InvalidRequest
from raftlog.storage.os_filesystem import DIRECTORY_MODE, FILE_MODE

SECRET_NAME = "cluster.secret"
RPC_PORT_STEP = 100


def settings_path(directory: Path, broker_id: int) -> Path:
    """Where a broker's settings stand."""
    return directory / f"broker-{broker_id}" / "raftlog.toml"


def existing_brokers(directory: Path) -> list[int]:
    """The ids of the brokers that were set up in a directory, rising."""
    found = []
    for path in directory.glob("broker-*/raftlog.toml"):
        number = path.parent.name.removeprefix("broker-")
        if number.isdigit():
            found.append(int(number))
    return sorted(found)


def create_cluster(
    directory: Path, *, brokers: int, http_port: int, rpc_port: int | None = None
) -> list[Path]:
    """Write secret and settings of a new cluster; return the settings' paths.

    Broker n listens for HTTP on ``http_port + n - 1`` and for its peers on ``rpc_port + n - 1``.
    Raises ``InvalidRequest`` when a cluster is there already or the numbers make no sense.
    """
    rpc_base = http_port + RPC_PORT_STEP if rpc_port is None else rpc_port
    if not 1 <= brokers <= RPC_PORT_STEP:
        raise InvalidRequest(
            f"brokers is {brokers}; choose 1 to {RPC_PORT_STEP}, best 1, 3 or 5", field="brokers"
        )
    if not 1 <= http_port <= 65535 - brokers or not 1 <= rpc_base <= 65535 - brokers:
        raise InvalidRequest(
            f"ports {http_port} and {rpc_base} leave no room for {brokers} brokers", field="http_port"
        )
    if existing_brokers(directory):
        raise InvalidRequest(
            f"{directory} holds a cluster already; start it, or choose another directory", field="data"
        )
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    _write(directory / SECRET_NAME, secrets.token_hex(32) + "\n")
    cluster_id = uuid.uuid4().hex
    peers = "\n".join(
        f'[peers.{n}]\nhost = "127.0.0.1"\nport = {rpc_base + n - 1}\n' for n in range(1, brokers + 1)
    )
    paths = []
    for broker_id in range(1, brokers + 1):
        path = settings_path(directory, broker_id)
        path.parent.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        _write(
            path,
            f'cluster_id = "{cluster_id}"\nbroker_id = {broker_id}\n'
            f'secret_file = "../{SECRET_NAME}"\ndata_directory = "data"\n\n'
            f'[http]\nhost = "127.0.0.1"\nport = {http_port + broker_id - 1}\n\n'
            f'[rpc]\nhost = "127.0.0.1"\nport = {rpc_base + broker_id - 1}\n\n{peers}',
        )
        paths.append(path)
    return paths


def read_secret(path: Path) -> bytes:
    """The cluster's secret. Raises ``InvalidRequest`` when it is missing, empty or readable by others."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # reading a pipe would wait for its other end
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
            f"{path} holds fewer than 16 bytes; make a new cluster secret", field="secret_file"
        )
    if mode & 0o077:
        raise InvalidRequest(f"{path} can be read by others; run: chmod 600 {path}", field="secret_file")
    return secret


def _write(path: Path, text: str) -> None:
    """A new file, its owner's alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
