"""Addresses of brokers: the machines of ``cluster init --host``, and their URLs.

A broker whose machine is given by an IP address listens on that address. A broker whose machine is given by a
host name listens on all IPv4 and IPv6 addresses of the machine, since the machine's own name often resolves
to loopback there (as in Debian's ``/etc/hosts``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

PORT_MAX = 65_535
RPC_PORT_STEP = 100
BROKERS_MAX = RPC_PORT_STEP  # on one machine: the port ranges for HTTP and RPC must not overlap
EVERYWHERE = ""  # asyncio listens on all addresses of the machine, IPv4 and IPv6

_GIVEN = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(:(?P<port>[0-9]{1,5}))?")
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$)(?!(.*\.)?[0-9]+$){_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True, slots=True)
class Machine:
    """Address of one broker of a new cluster. ``host`` is a name, or an IP address without brackets."""

    host: str
    http_port: int
    rpc_port: int

    @property
    def listen_host(self) -> str:
        """The address to bind: the IP address of the machine, or all addresses if ``host`` is a name."""
        if self.host == "localhost":
            return "127.0.0.1"
        return EVERYWHERE if _ip(self.host) is None else self.host

    @property
    def url(self) -> str:
        """The URL that clients use."""
        return http_url(self.host, self.http_port)


def http_url(host: str, port: int, scheme: str = "http") -> str:
    """The URL of an HTTP listener."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def names_of(urls: Iterable[str]) -> frozenset[str]:
    """The host names of URLs, in lower case."""
    return frozenset(name for url in urls if (name := urlsplit(url).hostname))


def is_loopback(host: str) -> bool:
    """True if the address is reachable from this machine only."""
    ip = _ip(host)
    return host == "localhost" if ip is None else ip.is_loopback


def is_unspecified(host: str) -> bool:
    """True if the address means all addresses of a machine, so that clients cannot connect to it."""
    ip = _ip(host)
    return not host if ip is None else ip.is_unspecified


def machines(
    given: Sequence[str], http_port: int, rpc_port: int | None, *, per_host: int = 1
) -> list[Machine]:
    """Parse the brokers of a cluster from ``HOST``, ``HOST:PORT`` or ``[IPv6]:PORT``; the port is for HTTP.

    The list begins with one broker of each host. With ``per_host`` above 1, the second broker of each host
    follows, with ports that are higher by 1, and so on. Raises ``ValueError``, which names the option and the
    remedy.
    """
    if len(given) * per_host > BROKERS_MAX:
        times = "" if per_host == 1 else f", with --per-host {per_host}"
        raise ValueError(
            f"--host is given {len(given)} times{times}; a cluster has {BROKERS_MAX} brokers at most"
        )
    given = list(given) * per_host
    hosts = len(given) // per_host
    found = [_machine(text, http_port, rpc_port, number // hosts) for number, text in enumerate(given)]
    taken: dict[tuple[str, int], str] = {}
    for text, machine in zip(given, found, strict=True):
        for port in (machine.http_port, machine.rpc_port):
            if (machine.host, port) in taken:
                raise ValueError(
                    f"--host {text!r}: port {port} of {machine.host} is taken by --host "
                    f"{taken[machine.host, port]!r}; give each broker a machine of its own, or other ports; "
                    "--per-host chooses them for several brokers on each machine"
                )
            taken[machine.host, port] = text
    local = [text for text, machine in zip(given, found, strict=True) if is_loopback(machine.host)]
    if 0 < len(local) < len(found):
        raise ValueError(
            f"--host {local[0]!r} can be reached from its own machine only; use an address that the "
            f"other machines can reach"
        )
    return found


def _machine(text: str, http_port: int, rpc_port: int | None, step: int) -> Machine:
    """Parse the address of a broker whose ports are ``step`` higher than the ports of the first broker of its
    host.
    """
    parts = _GIVEN.fullmatch(text)
    if parts is None:
        raise ValueError(
            f"--host {text!r} is neither HOST nor HOST:PORT; write IPv6 in brackets: '[2001:db8::1]:7070'"
        )
    http = (http_port if parts["port"] is None else int(parts["port"])) + step
    rpc = http + RPC_PORT_STEP if rpc_port is None else rpc_port + step
    for what, port in (("HTTP port", http), ("port between brokers", rpc)):
        if not 1 <= port <= PORT_MAX:
            raise ValueError(f"--host {text!r}: the {what} is {port}; choose 1 to {PORT_MAX}")
    return Machine(_host(text, parts["host"]), http, rpc)


def _host(text: str, host: str) -> str:
    ip = _ip(host.strip("[]"))
    if ip is not None and host.startswith("[") == (ip.version == 6) and "%" not in host:
        if ip.is_unspecified or ip.is_multicast:
            raise ValueError(
                f"--host {text!r} is not the address of a machine; use one that other machines can reach"
            )
        return str(ip)
    name = host.lower().removesuffix(".")
    if not _NAME.fullmatch(name):
        raise ValueError(f"--host {text!r} is neither a name such as log1.example nor an IP address")
    return name


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
