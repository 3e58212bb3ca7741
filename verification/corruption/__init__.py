"""Damages the disks of whole simulated clusters, in random cases that seeds determine.

Decides: which files of which brokers are damaged and how, and what counts as detected, harmless, repaired,
lost or served. Leaves to others: the brokers (production code), their disks and their time
(``verification.simulator``). Read ``damage`` for the kinds of damage, ``case`` for the checks.
"""
