"""Writes the text of all metrics of a registry in pieces; other tasks of the event loop run between the
pieces.

Decides: the text of a sample (OpenMetrics 1.0), and how long the loop is blocked at a time. Leaves to others:
the values (the collectors), and sending (``api.resources.metrics``). A collector that reads thousands of
parts (groups or partitions) yields ``PAUSE`` between some of them; ``PAUSE`` is not a metric.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

PAUSE: Final = Metric("raftlog_pause", "Not a metric: its collector continues in the next turn.", "unknown")
SLICE_S: Final = 0.003  # a slice ends after the step that passes this time
STEP: Final = 100  # parts that a collector looks at between two pauses

Part = TypeVar("Part")


async def exposition(
    registry: CollectorRegistry, now: Callable[[], float] = time.perf_counter
) -> AsyncIterator[bytes]:
    """Yield the text of the metrics in pieces. After each piece, other tasks of the event loop run."""
    texts: list[str] = []
    began = now()
    for text in _texts(registry):
        texts.append(text)
        if now() - began >= SLICE_S:
            if piece := "".join(texts):
                yield piece.encode()
            texts.clear()
            await asyncio.sleep(0)
            began = now()
    yield "".join(texts).encode()


def steps(parts: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """Split parts (groups or partitions) into chunks; a collector yields ``PAUSE`` after each chunk."""
    for at in range(0, len(parts), STEP):
        yield parts[at : at + STEP]


def _texts(registry: CollectorRegistry) -> Iterator[str]:
    for family in registry.collect():
        if family is PAUSE:
            yield ""
            continue
        yield _head(family)
        for sample in family.samples:
            yield _line(sample)
    yield "# EOF\n"


def _head(family: Metric) -> str:
    unit = f"# UNIT {family.name} {family.unit}\n" if family.unit else ""
    return (
        f"# HELP {family.name} {_escaped(family.documentation)}\n# TYPE {family.name} {family.type}\n{unit}"
    )


def _line(sample: Sample) -> str:
    labels = ""
    if sample.labels:
        pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(sample.labels.items()))
        labels = f"{{{pairs}}}"
    value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]
    return f"{sample.name}{labels} {value}\n"


def _escaped(text: str) -> str:
    if text.isalnum():
        return text
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
