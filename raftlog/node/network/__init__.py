"""Authenticated, checksummed, bounded frames between brokers.

Decides: which nodes may connect (``handshake``), how frames are cut from a byte stream (``framing``), which
connections a broker keeps (``tcp_links``). Leaves to others: the content of a frame (``raftlog.node.codec``).

Read ``transport`` first, the port; ``tcp_transport`` is its implementation.
"""
