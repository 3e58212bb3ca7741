"""Describes one broker by metrics that Prometheus collects.

Decides: names, labels and values. Leaves to others: the HTTP response (``api.resources.metrics``).
"""
