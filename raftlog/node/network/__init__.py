"""Authenticated, checksummed, bounded frames between brokers.

Decides: who may speak (``handshake``), how frames are cut from a byte stream (``framing``), which connections
a broker keeps (``tcp_links``). Leaves to others: what stands in a frame (``raftlog.node.codec``).

Read ``transport`` first, the port; ``tcp_transport`` is its implementation.
"""
