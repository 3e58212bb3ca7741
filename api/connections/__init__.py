"""HTTP connections of a broker, and the parsers of their requests.

``http_connections`` has all connections. ``fast_path`` parses common requests (as bytes in
``plain_requests``), and aiohttp parses all others (``aiohttp_reader``). Leaves to others: sockets, and the
limits of connections and bytes (``broker.listeners``).
"""
