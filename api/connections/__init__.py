"""Who may connect over HTTP, and who reads what comes in.

``listener`` is the socket, ``connection_limit`` bounds the connections. The usual requests are read by
``fast_path`` (as bytes in ``plain_requests``), all others by aiohttp (``aiohttp_reader``).
"""
