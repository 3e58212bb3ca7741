"""Moves replicas between brokers while their partitions serve.

``steps`` decides the next step of a leader, as a pure function; ``reassigner`` carries it out. ``admin`` has
the operations on one partition: another leader, other replicas, or ``unsafe_recovery`` when a majority is
lost permanently.
"""
