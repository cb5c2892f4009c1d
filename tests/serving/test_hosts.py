"""Which `Host` headers a server answers to."""

import socket

import pytest
import requests

from keras_lm.serving.hosts import Hosts

NAMED = ["localhost", "LOCALHOST:8501", "127.0.0.1:80", "[::1]:8501", "my.host:1", "a.example.com"]
ADDRESSES = ["10.0.0.1:8501", "[fe80::1]:8501", f"{socket.gethostname()}:8501"]
OTHERS = [
    "",
    "evil.com",
    "evil.com:8501",
    "localhost.evil.com",
    "[::1",
    "127.0.0.1.evil.com",
    "x@y",
]


@pytest.mark.parametrize("host", ["my.host", "0.0.0.0"])
def test_names_of_a_server(host):
    hosts = Hosts(host, ["my.host", "*.example.com"])
    assert [name for name in NAMED if name not in hosts] == []
    assert [name for name in OTHERS if name in hosts] == []
    # At all addresses, only the names are checked: who asks for an address reaches no other.
    assert [name for name in ADDRESSES if name in hosts] == (ADDRESSES * (host == "0.0.0.0"))


def test_requests_for_another_host_are_refused(server, rest):
    for url in (server.rest_url, rest.url):
        response = requests.get(url, headers={"Host": "evil.com"}, timeout=10)
        assert response.status_code == 400
        assert "Host 'evil.com' is not a name of this server" in response.json()["error"]
        own = {"Host": server.rest_url.replace("http://127.0.0.1", "localhost")}
        assert requests.get(url, headers=own, timeout=10).status_code == 200
