"""HTTP connections of a broker: how many there may be, and which parser reads their requests.

``listener`` is the socket, ``connection_limit`` bounds the connections. The usual requests are read by
``fast_path`` (as bytes in ``plain_requests``), all others by aiohttp (``aiohttp_reader``).
"""
