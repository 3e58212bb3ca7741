"""Connects the coordinators of one broker with their internal topics and with partitions.

Decides: which coordinator the replica of an internal topic's partition has, and how a coordinator uses other
partitions. Leaves to others: the decisions of coordinators (``groups``, ``transactions``, ``delayed``).
"""
