"""Gives each broker its own network: packets can be dropped without any effect on connections.

::

    harness ── the hub, a network namespace          broker 1 ── a namespace
      br0 10.77.0.254 ─────────── broker1 ══════════ eth0 10.77.0.1
                      ─────────── broker2 ══════════ eth0 10.77.0.2     (and so on)

The harness enters the hub before it starts anything, so the machine's own network is never changed. Proxies
run in the hub; brokers reach them at ``Namespaces.hub_address``, and each other through the bridge. All
packets of brokers cross the bridge, where nftables drops TCP and UDP over IPv4; ARP still works.

Each namespace has a holder, a shell whose standard input is a pipe of the harness. When the harness ends,
even by SIGKILL, holders kill all processes in their namespaces, and the kernel removes namespaces and
interfaces. The holder of the hub ends first, because a process that is entering a broker's namespace is still
in the hub.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NoReturn, Self

import msgspec

PROGRAMS: Final = {
    "ip": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
BROKERS_MAX: Final = 253
WAIT_S: Final = 10.0
# Process id of the hub's harness: exec keeps it, and no child process has it.
HUB_VARIABLE: Final = "CHAOS_HUB"

# Matching rules only mark a packet, which is dropped after all rules, so that each rule counts its matches.
MARK: Final = "0x72616674"
RULES: Final = f"""
table bridge raftlog {{
    chain drops {{ }}
    chain to_hub {{ type filter hook input priority 0; jump drops; meta mark {MARK} drop; }}
    chain between_brokers {{ type filter hook forward priority 0; jump drops; meta mark {MARK} drop; }}
    chain from_hub {{ type filter hook output priority 0; jump drops; meta mark {MARK} drop; }}
}}
"""
CHAIN: Final = ("bridge", "raftlog", "drops")

# Waits for the end of its input; then kills all processes in its namespace, except itself and the harness.
HOLDER: Final = """
echo ready
read -r _
found=yes
while [ "$found" ]; do
    found=
    for process in /proc/[0-9]*; do
        [ "$process/ns/net" -ef /proc/$$/ns/net ] || continue
        case "${process#/proc/}" in $$ | $PPID) continue ;; esac
        found=yes
        kill -9 "${process#/proc/}" 2>/dev/null
    done
    sleep 0.02
done
"""


class NamespacesFailed(Exception):
    """A command failed; the message has the command and its output."""


def missing() -> str | None:
    """Return the reason why there are no network namespaces on this machine, and the remedy; None if they can
    be used.
    """
    if sys.platform != "linux":
        return "network namespaces need Linux: run chaos in Docker (--privileged)"
    if os.geteuid() != 0:
        return "network namespaces need root: run with sudo, or in Docker (--privileged)"
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"the program {program} is missing: install {package}"
    rule = " ".join(("add rule", *CHAIN, *_expression(Flow(target="10.77.0.1", target_port=1), percent=1)))
    script = 'printf %s "$1" | ip -batch -; printf %s "$2" | nft -f -'
    links = _add_bridge() + "link add type veth\n"
    trial = ("unshare", "--net", "sh", "-ec", script, "sh", links, RULES + rule)
    tried = subprocess.run(trial, capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return None
    return (
        f"network namespaces do not work on this machine ({' '.join(tried.stderr.split())}): the kernel "
        "needs bridge, veth and nftables, and a container needs --privileged"
    )


def is_hub() -> bool:
    """Return whether this process has entered a hub by ``enter_hub``. Returns False in its child
    processes.
    """
    return os.environ.get(HUB_VARIABLE) == str(os.getpid())


def enter_hub() -> NoReturn:
    """Execute this command line again, in a new network namespace, where ``is_hub`` is true.

    Raises ``NamespacesFailed`` if there are no namespaces on this machine.
    """
    if reason := missing():
        raise NamespacesFailed(reason)
    sys.stdout.flush()
    sys.stderr.flush()
    command = ["unshare", "--net", "--", sys.executable, *sys.orig_argv[1:]]
    os.execvpe(command[0], command, {**os.environ, HUB_VARIABLE: str(os.getpid())})


@dataclass(frozen=True, slots=True)
class Flow:
    """Packets of TCP and UDP in one direction. A source or target of None matches all addresses."""

    source: str | None = None
    target: str | None = None
    source_port: int | None = None
    target_port: int | None = None


class Drop:
    """A rule that drops packets until it is stopped. If several rules match a packet, each of them counts
    it.
    """

    def __init__(self, flow: Flow, percent: int) -> None:
        added = _rules(_run("nft", "-j", "-e", "add", "rule", *CHAIN, *_expression(flow, percent)))
        self._handle = added[0].handle
        self._last: int | None = None  # number of packets; set when the rule is stopped

    def packets(self) -> int:
        """Return the number of dropped packets."""
        if self._last is not None:
            return self._last
        for rule in _rules(_run("nft", "-j", "list", "chain", *CHAIN)):
            if rule.handle == self._handle:
                return sum(part.counter.packets for part in rule.expr if part.counter is not None)
        raise NamespacesFailed(f"nftables has no rule with handle {self._handle}")

    def stop(self) -> int:
        """Remove the rule; return the number of packets that it has dropped."""
        packets = self.packets()
        if self._last is None:
            _run("nft", "delete", "rule", *CHAIN, "handle", str(self._handle))
            self._last = packets
        return packets


class Namespaces:
    """One network namespace for each broker, connected to the hub.

    ::

        with Namespaces([1, 2, 3]) as network:
            subprocess.Popen([*network.command(1), "raftlog", "serve", ...])
            drop = network.drop(Flow(source=network.address(1), target=network.address(2)))
            assert drop.stop() > 0

    At the end it kills all processes in the namespaces. All methods raise ``NamespacesFailed``.
    """

    hub_address: Final = "10.77.0.254"

    def __init__(self, brokers: Sequence[int]) -> None:
        if not is_hub():
            raise NamespacesFailed(
                "network namespaces can be created inside a hub only: call enter_hub first"
            )
        if not all(1 <= broker <= BROKERS_MAX for broker in brokers):
            raise NamespacesFailed(f"brokers are {list(brokers)}; choose numbers from 1 to {BROKERS_MAX}")
        self.brokers = sorted(set(brokers))
        self._holders: dict[int, subprocess.Popen[str]] = {}
        self._undo = ExitStack()

    def address(self, broker: int) -> str:
        """Return the address at which other brokers and the hub reach a broker."""
        return f"10.77.0.{broker}"

    def command(self, broker: int) -> list[str]:
        """Return the words to put before a command, so that it runs in a broker's namespace; its process id
        does not change.
        """
        return _inside(self._holders[broker].pid)

    def drop(self, flow: Flow, percent: int = 100) -> Drop:
        """Drop packets that cross the bridge, all or a random percentage of them; their senders get no error.

        Packets from the hub to itself do not cross the bridge.
        """
        if not 1 <= percent <= 100:
            raise NamespacesFailed(f"percent is {percent}; choose 1 to 100")
        return Drop(flow, percent)

    def unplug(self, broker: int) -> None:
        """Disable the network link of a broker: packets are lost, and connections stay open."""
        _run("ip", "link", "set", _interface(broker), "down")

    def plug(self, broker: int) -> None:
        """Enable the network link of a broker again after ``unplug``."""
        _run("ip", "link", "set", _interface(broker), "up")

    def __enter__(self) -> Self:
        try:
            _run("ip", "-batch", "-", text=_add_bridge())
            self._undo.callback(_run, "ip", "link", "delete", "br0")
            _run("nft", "-f", "-", text=RULES)
            self._undo.callback(_run, "nft", "delete", "table", "bridge", "raftlog")
            for broker in self.brokers:
                self._add(broker)
            # This holder also has the pipes of the others, so that they wait for it. If this harness ends its
            # network in order, the holder must kill no process in the hub.
            self._undo.callback(subprocess.Popen.kill, self._hold(pipes=self._pipes()))
        except BaseException:
            self._undo.close()
            raise
        return self

    def _add(self, broker: int) -> None:
        self._holders[broker] = self._hold("unshare", "--net")
        pid = self._holders[broker].pid
        _run("ip", "-batch", "-", text=_add_broker(broker, pid))
        # The kernel removes the link later than the namespace: too late for another broker with this number.
        self._undo.callback(_run, "ip", "link", "delete", _interface(broker))
        inside = f"link set lo up\nlink set eth0 up\naddress add {self.address(broker)}/24 dev eth0\n"
        _run(*_inside(pid), "ip", "-batch", "-", text=inside)

    def _pipes(self) -> list[int]:
        return [holder.stdin.fileno() for holder in self._holders.values() if holder.stdin is not None]

    def _hold(self, *prefix: str, pipes: Sequence[int] = ()) -> subprocess.Popen[str]:
        """Start a holder in this namespace, or in the namespace that a prefix selects; the holder keeps
        ``pipes`` open.
        """
        holder = subprocess.Popen(
            [*prefix, "sh", "-c", HOLDER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches only the harness
            pass_fds=pipes,
        )
        self._undo.callback(_end, holder)
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            raise NamespacesFailed(f"a holder did not start: {shlex.join([*prefix, 'sh'])}")
        return holder

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._undo.close()


class _Counter(msgspec.Struct):
    packets: int


class _Part(msgspec.Struct):
    counter: _Counter | None = None


class _Rule(msgspec.Struct):
    handle: int
    expr: list[_Part]


class _Item(msgspec.Struct):
    rule: _Rule | None = None
    add: _Item | None = None


class _Output(msgspec.Struct):
    nftables: list[_Item]


def _rules(text: str) -> list[_Rule]:
    """Return the rules in the output of ``nft -j``, which has listed or added them."""
    items = [item.add or item for item in msgspec.json.decode(text, type=_Output).nftables]
    return [item.rule for item in items if item.rule is not None]


def _expression(flow: Flow, percent: int) -> list[str]:
    """Return the nftables expression that matches packets of a flow, counts them, and marks the packets to be
    dropped.
    """
    words = "meta protocol ip meta l4proto { tcp, udp }"
    if flow.source is not None:
        words += f" ip saddr {flow.source}"
    if flow.target is not None:
        words += f" ip daddr {flow.target}"
    if flow.source_port is not None:
        words += f" th sport {flow.source_port}"
    if flow.target_port is not None:
        words += f" th dport {flow.target_port}"
    if percent < 100:
        words += f" numgen random mod 100 < {percent}"
    return f"{words} counter meta mark set {MARK}".split()


def _add_bridge() -> str:
    """Return the lines of ``ip -batch`` that create the hub's network."""
    return (
        "link set lo up\nlink add br0 type bridge\nlink set br0 up\n"
        f"address add {Namespaces.hub_address}/24 dev br0\n"
    )


def _add_broker(broker: int, pid: int) -> str:
    """Return the lines of ``ip -batch`` that connect the namespace of a process to the bridge."""
    name = _interface(broker)
    return (
        f"link add {name} type veth peer name eth0 netns {pid}\n"
        f"link set {name} master br0\nlink set {name} up\n"
    )


def _interface(broker: int) -> str:
    return f"broker{broker}"


def _inside(pid: int) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--"]


def _end(holder: subprocess.Popen[str]) -> None:
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.close()
    holder.stdout.close()
    try:
        holder.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()
        raise NamespacesFailed("processes in a namespace could not be killed") from None


def _run(*command: str, text: str = "") -> str:
    """Run a command with ``text`` as its input; return its output. Raises ``NamespacesFailed``."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=WAIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NamespacesFailed(f"{shlex.join(command)}: {error}") from error
    if done.returncode != 0:
        given = f", given {text!r}" if text else ""
        raise NamespacesFailed(f"{shlex.join(command)}{given}: {done.stderr.strip()}")
    return done.stdout
