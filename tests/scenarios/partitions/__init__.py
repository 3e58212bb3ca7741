"""Partitions on several brokers of one process."""
