"""Handles HTTP connections of a broker: their limit, and the parsers of their requests.

``listener`` is the socket, ``connection_limit`` limits the connections. ``fast_path`` parses common requests
(as bytes in ``plain_requests``), aiohttp all others (``aiohttp_reader``).
"""
