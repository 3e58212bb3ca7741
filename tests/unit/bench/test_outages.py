"""The loop of row 9: gaps between acknowledgements, and what is made of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.outages import ISOLATION, KILL, STOP, TRANSFER, Acknowledgements, Send, outages
from bench.rows_of_chaos import outage_figures

GAP_S = 0.15


class OneServer:
    """It stores everything at once, except while it is failing."""

    kinds = (TRANSFER,)

    def __init__(self) -> None:
        self._is_up = threading.Event()
        self._is_up.set()

    def wait_healthy(self) -> None:
        """It always is."""

    @contextmanager
    def client(self) -> Iterator[Send]:
        """One that waits for it."""

        def send(_: int) -> None:
            time.sleep(0.001)
            self._is_up.wait()

        yield send

    @contextmanager
    def failing(self, kind: str, trial: int) -> Iterator[None]:
        """Down before the block begins, and up within it."""
        self._is_up.clear()
        threading.Timer(GAP_S, self._is_up.set).start()
        yield


def test_the_longest_gap_of_each_trial_is_measured() -> None:
    (gaps,) = outages(OneServer(), 3).values()
    assert len(gaps) == 3
    assert min(gaps) >= 0.9 * GAP_S


def test_acknowledgements_before_a_trial_do_not_count() -> None:
    acknowledgements = Acknowledgements(OneServer())
    now_s = time.monotonic()
    acknowledgements.times = [now_s - 900, now_s - 2, now_s - 1.5, now_s + 100]
    assert 101 < acknowledgements.longest_gap_s(now_s - 1.75) < 102


def test_a_row_is_kept_by_the_99th_percentile_and_compares_with_the_peer() -> None:
    ours = {kind: [0.2, 0.4, 0.6] for kind in (KILL, STOP, ISOLATION)} | {TRANSFER: [0.01, 0.05, 0.1]}
    peers = {"NATS": {KILL: [2.0, 4.0, 6.0], TRANSFER: [0.1]}}
    figures, is_kept = outage_figures(ours, peers)
    assert is_kept
    assert figures["trials of each kind"] == 3
    assert figures[f"{KILL}: p50, ms"] == 400
    assert figures[f"{KILL}: p50 of NATS, ms"] == 4000
    assert figures[f"{KILL}: longest of NATS, ms"] == 6000
    assert figures[f"{KILL}: p50 as a part of that of NATS"] == 0.1
    assert figures[f"{STOP}: NATS"] == "not measured"
    for kind, late_s in ((STOP, 1.01), (TRANSFER, 0.11)):
        _, is_kept = outage_figures({**ours, kind: [0.01, 0.02, late_s]}, peers)
        assert not is_kept
    _, is_kept = outage_figures({kind: gaps for kind, gaps in ours.items() if kind != ISOLATION}, {})
    assert not is_kept
