"""HTTP connections of a broker, and the parsers of their requests.

``http_connections`` has all of them. ``fast_path`` parses common requests (as bytes in ``plain_requests``),
aiohttp all others (``aiohttp_reader``). Leaves to others: sockets, and the limits of connections and bytes
(``broker.listeners``).
"""
