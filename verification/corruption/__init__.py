"""Damages disks in random cases from seeds, on whole simulated clusters.

Decides: which files of which brokers are damaged and how, and what counts as detected, harmless, repaired,
lost or served. Leaves to others: the brokers (production code), their disks and their time
(``verification.simulator``). Read ``damage`` for the kinds, ``case`` for the checks.
"""
