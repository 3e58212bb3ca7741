"""The metrics of one broker, as Prometheus collects them.

Decides: names, labels and values. Leaves to others: the HTTP answer (``api.resources.metrics``).
"""
