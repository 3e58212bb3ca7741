"""Describes one broker by metrics that Prometheus collects.

Decides: names, labels and values of the metrics. Leaves to others: the HTTP response
(``api.resources.metrics``).
"""
