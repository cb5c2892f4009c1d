"""Whom requests are for: the names in `Host` headers that a server answers to.

A web page may have the name of its own site lead to this machine (DNS rebinding), and would then be
let into a server that only this machine reaches. Its requests still carry that name.
"""

import socket
from fnmatch import fnmatchcase
from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL = ("localhost", "127.0.0.1", "::1")


class Hosts:
    """Tells whether a `Host` header names this server.

    Names are those of this machine for itself and the one that the server listens at. A server that
    listens at all addresses answers to each of them, and to the name of the machine.

    Args:
        host: str, the address or name that the server listens at.
        more: list of str, further names; `*` in them stands for any characters.
    """

    def __init__(self, host, more=()):
        if isinstance(more, str):
            raise ValueError(f"allowed_hosts={more!r}: pass a list of names, [{more!r}].")
        self._takes_addresses = host in ("0.0.0.0", "::")
        names = [*LOCAL, host, *more, *([socket.gethostname()] * self._takes_addresses)]
        self._patterns = [name.lower() for name in names]

    def __contains__(self, header):
        try:
            name = urlsplit(f"//{header}").hostname or ""  # without the port, in small letters
        except ValueError:
            return False
        if any(fnmatchcase(name, pattern) for pattern in self._patterns):
            return True
        return self._takes_addresses and _is_address(name)


def _is_address(name):
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
