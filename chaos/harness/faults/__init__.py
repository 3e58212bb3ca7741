"""Lists all faults that a run can inject, in one table; each family of faults has a module.

Read ``steps`` first: a fault is a generator that begins the fault, yields, and ends it.
"""

from __future__ import annotations

from typing import Final

from chaos.harness.faults import connections, disks, files, membership, packets, processes, resources
from chaos.harness.faults.steps import Fault, Inject

PROCESSES: Final = "processes"
PROXIES: Final = "proxies"
NAMESPACES: Final = "namespaces"
SHIM: Final = "changed system calls"
POWER: Final = "power loss"
CGROUPS: Final = "control groups"


def _process(name: str, inject: Inject, *, longest_s: float = 8, weight: float = 1) -> Fault:
    effect = "processes stopped"
    return Fault(name, inject, effect, needs=(PROCESSES,), seconds=(0.1, longest_s), weight=weight)


def _cut(name: str, inject: Inject, *, brokers_min: int = 3) -> Fault:
    return Fault(name, inject, "connections ended", needs=(PROXIES,), brokers_min=brokers_min)


def _slow(name: str, inject: Inject) -> Fault:
    return Fault(name, inject, "bytes on these links", needs=(PROXIES,))


def _drop(name: str, inject: Inject, effect: str = "packets dropped") -> Fault:
    return Fault(name, inject, effect, needs=(PROXIES, NAMESPACES), brokers_min=3)


def _machine(name: str, inject: Inject, effect: str, need: str = SHIM, weight: float = 1) -> Fault:
    return Fault(name, inject, effect, needs=(PROCESSES, need), weight=weight)


def _damage(name: str, inject: Inject, effect: str, seconds: tuple[float, float] = (1.0, 8.0)) -> Fault:
    # Rare, because each of them waits until the cluster is healthy.
    needs = (PROCESSES,)
    return Fault(name, inject, effect, needs, is_damage=True, brokers_min=3, seconds=seconds, weight=0.25)


def _older_copy(name: str, inject: Inject, effect: str, needs: tuple[str, ...], weight: float) -> Fault:
    # The copy and brokers that were down since it was made can form a majority, and none of them can know it.
    return Fault(
        name,
        inject,
        effect,
        needs,
        is_damage=True,
        is_alone=True,
        brokers_min=3,
        seconds=(5.0, 8.0),
        weight=weight,
    )


_ALL: Final = (
    _process("kill", processes.kill, weight=2),
    _process("kill-in-recovery", processes.kill_in_recovery),
    _process("kill-all", processes.kill_all, longest_s=2, weight=0.5),
    _process("pause", processes.pause, longest_s=10, weight=2),
    _process("restart", processes.restart),
    _cut("isolate", connections.isolate),
    _cut("isolate-fully", connections.isolate_fully),
    _cut("halves", connections.halves),
    _cut("bridge", connections.bridge),
    _cut("majority-ring", connections.majority_ring, brokers_min=5),
    _cut("one-way", connections.one_way),
    _cut("cut-link", connections.cut_link),
    Fault(
        "cut-link-for-long",
        connections.cut_link_for_long,
        "connections ended",
        needs=(PROXIES,),
        brokers_min=3,
        seconds=(45.0, 120.0),
        weight=0.25,
    ),
    _cut("cut-clients", connections.cut_clients, brokers_min=1),
    _cut("reset", connections.reset, brokers_min=1),
    _cut("limit-data", connections.limit_data, brokers_min=1),
    _cut("timeout", connections.timeout, brokers_min=1),
    _slow("silence", connections.silence),
    _slow("latency", connections.latency),
    _slow("jitter", connections.jitter),
    _slow("bandwidth", connections.bandwidth),
    _slow("slicer", connections.slicer),
    Fault("slow-close", connections.slow_close, "connections open after a kill", needs=(PROCESSES, PROXIES)),
    _drop("drop-all", packets.drop_all),
    _drop("drop-sent", packets.drop_sent),
    _drop("drop-link", packets.drop_link),
    _drop("lose-packets", packets.lose_packets),
    _drop("unplug", packets.unplug, "cables unplugged"),
    _machine("slow-disk", disks.slow_disk, "slow calls"),
    _machine("full-disk", disks.full_disk, "writes refused"),
    _machine("read-only-disk", disks.read_only_disk, "changes refused"),
    _machine("failing-sync", disks.failing_sync, "syncs failed"),
    _machine("failing-read", disks.failing_read, "reads failed", weight=0.5),
    _machine("no-descriptors", resources.no_descriptors, "descriptors refused"),
    _machine("little-cpu", resources.little_cpu, "waits for the CPU", CGROUPS),
    _machine("clock-jump", disks.clock_jump, "clock reads changed"),
    _machine("power-loss", disks.power_loss, "power losses", POWER, weight=2),
    _machine("power-loss-of-all", disks.power_loss_of_all, "power losses", POWER, weight=0.5),
    Fault("transfer-leaders", membership.transfer_leaders, "leaderships transferred", brokers_min=2),
    Fault("move-replicas", membership.move_replicas, "replicas moved", brokers_min=2),
    _damage("flip-bits", files.flip_bits, "bits flipped"),
    _damage("truncate-file", files.truncate_file, "files truncated"),
    _damage("forget-partition", files.forget_partition, "folders removed"),
    _damage("forget-metadata", files.forget_metadata, "folders removed"),
    _damage("forget-everything", files.forget_everything, "directories emptied"),
    _older_copy("restore-copy", files.restore_copy, "copies restored", (PROCESSES,), 0.25),
    _older_copy("unheard-starts", files.unheard_starts, "starts", (PROCESSES, PROXIES), 0.1),
    _damage("copy-beside", files.copy_beside, "refusals of the copy"),
    _damage("restore-folder", files.restore_folder, "folders restored", seconds=(3.0, 6.0)),
)

FAULTS: Final = {fault.name: fault for fault in _ALL}
