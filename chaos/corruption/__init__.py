"""Disks that rot: one case after the other, drawn from a seed, on whole simulated clusters.

Decides: which files of which brokers are damaged and how, and what counts as detected, harmless, repaired,
lost or served. Leaves to others: the brokers, which are those that ship, their disks and their time
(``chaos.simulator``). Read ``damage`` for the kinds, ``case`` for what must hold.
"""
