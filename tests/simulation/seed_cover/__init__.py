"""``python -m tests.simulation.seed_cover``: choose the seeds that ``make test`` runs.

Decides: few, cheap seeds that reach as much as many random ones. ``branches`` records the branches of the
source that a run takes, ``measurement`` runs the seeds, ``choice`` chooses among them. Leaves the runs
themselves to ``verification.simulator``, which ships without this package.
"""
