"""All faults that a run can inject, in one table; one module for each family.

Read ``steps`` first: a fault is a generator that begins it, yields, and ends it.
"""

from __future__ import annotations

from typing import Final

from chaos.harness.faults import connections, files, membership, processes
from chaos.harness.faults.steps import Fault

PROXIES: Final = "proxies"

_ALL: Final = (
    Fault(name="kill", steps=processes.kill, effect="processes killed", weight=2),
    Fault(name="kill-in-recovery", steps=processes.kill_in_recovery, effect="processes killed"),
    Fault(name="kill-all", steps=processes.kill_all, effect="processes killed", seconds=(0.1, 2), weight=0.5),
    Fault(name="pause", steps=processes.pause, effect="processes stopped", seconds=(0.1, 10), weight=2),
    Fault(name="restart", steps=processes.restart, effect="processes restarted"),
    *(
        Fault(name=name, steps=steps, effect="connections ended", needs=(PROXIES,), brokers_min=brokers_min)
        for name, steps, brokers_min in (
            ("isolate", connections.isolate, 3),
            ("isolate-fully", connections.isolate_fully, 3),
            ("halves", connections.halves, 3),
            ("bridge", connections.bridge, 3),
            ("majority-ring", connections.majority_ring, 5),
            ("one-way", connections.one_way, 3),
            ("cut-link", connections.cut_link, 3),
            ("cut-clients", connections.cut_clients, 1),
            ("reset", connections.reset, 1),
            ("limit-data", connections.limit_data, 1),
            ("timeout", connections.timeout, 1),
        )
    ),
    *(
        Fault(name=name, steps=steps, effect="bytes on these links", needs=(PROXIES,), brokers_min=1)
        for name, steps in (
            ("silence", connections.silence),
            ("latency", connections.latency),
            ("jitter", connections.jitter),
            ("bandwidth", connections.bandwidth),
            ("slicer", connections.slicer),
        )
    ),
    Fault(
        name="slow-close", steps=connections.slow_close, effect="connections open after it", needs=(PROXIES,)
    ),
    Fault(name="transfer-leaders", steps=membership.transfer_leaders, effect="leaderships transferred"),
    Fault(name="move-replicas", steps=membership.move_replicas, effect="replicas moved"),
    Fault(name="flip-bits", steps=files.flip_bits, effect="bits flipped", is_damage=True),
    Fault(name="truncate-file", steps=files.truncate_file, effect="files truncated", is_damage=True),
    Fault(name="forget-partition", steps=files.forget_partition, effect="folders removed", is_damage=True),
    Fault(name="forget-metadata", steps=files.forget_metadata, effect="folders removed", is_damage=True),
    Fault(
        name="forget-everything", steps=files.forget_everything, effect="directories emptied", is_damage=True
    ),
)

FAULTS: Final = {fault.name: fault for fault in _ALL}
