"""Replicas move from broker to broker while their partition serves.

``steps`` decides what a leader does next, a pure function; ``reassigner`` does it. ``admin`` is what
operators ask of one partition: another leader, other replicas, or ``unsafe_recovery``, when a majority is
gone for good.
"""
