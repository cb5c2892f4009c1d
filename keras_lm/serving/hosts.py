"""The host names that a server answers to, checked against the `Host` header of each request.

The check stops DNS rebinding: a web page can make its own domain resolve to this machine, and so
reach a server that listens on this machine only. Its requests still carry that domain as `Host`.
"""

import socket
from fnmatch import fnmatchcase
from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL = ("localhost", "127.0.0.1", "::1")


class Hosts:
    """The names of a server, for `header in hosts`.

    They are this machine's names for itself and the host that the server listens on. A server that
    listens on all addresses answers to every address, and to the name of the machine.

    Args:
        host: str, the address or name that the server listens on.
        more: list of str, further names; `*` in them matches any characters.
    """

    def __init__(self, host, more=()):
        if isinstance(more, str):
            raise ValueError(f"allowed_hosts={more!r}: pass a list of names, [{more!r}].")
        self._takes_addresses = host in ("0.0.0.0", "::")
        names = [*LOCAL, host, *more, *([socket.gethostname()] * self._takes_addresses)]
        self._patterns = [name.lower() for name in names]

    def __contains__(self, header):
        try:
            name = urlsplit(f"//{header}").hostname or ""  # without the port, in lower case
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
