"""The metrics of a whole broker: the type and the labels of each, as a scrape has them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

from prometheus_client import CollectorRegistry

from api.server import warn_if_insecure
from broker.archived_reads import Archive
from broker.listeners.tls import TlsContext, TlsFiles
from broker.listeners.tls_reloads import TlsReloads
from broker.process.log_queue import LogLines
from broker.process.loop_delay import LoopDelay
from tests.helpers.certificates import Authority
from tests.helpers.whole_broker import whole_broker


class Known(NamedTuple):
    """A metric of the table."""

    kind: str
    labels: tuple[str, ...]

    def series(self, name: str) -> dict[str, tuple[str, ...]]:
        """Its series, which expressions name, and their labels."""
        if self.kind != "histogram":
            return {name: self.labels}
        return {
            f"{name}_bucket": (*self.labels, "le"),
            f"{name}_sum": self.labels,
            f"{name}_count": self.labels,
        }


async def known_metrics() -> dict[str, Known]:
    """By the name that expressions use: counters end in ``_total``."""
    async with whole_broker(archive=cast("Archive", object())) as found:
        registry = found.request_pipeline.services.registry
        delay = LoopDelay(registry)
        registry.register(LogLines())
        warn_if_insecure((), registry)
        with TemporaryDirectory() as name:
            certificate, key = Authority(Path(name)).certificate()
            files = TlsFiles(name="https", certificate_file=certificate, key_file=key)
            reloads = TlsReloads(TlsContext.of(files), registry)
        try:
            return _metrics_of(registry)
        finally:
            reloads.stop()
            delay.stop()


def _metrics_of(registry: CollectorRegistry) -> dict[str, Known]:
    found = {}
    for collector in registry._collector_to_names:
        for metric in collector.collect():
            labels = getattr(metric, "_labelnames", None) or getattr(collector, "_labelnames", None) or ()
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            if metric.type != "unknown":  # a pause
                found[name] = Known(metric.type, tuple(labels))
    return found
