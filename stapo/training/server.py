"""Checks of the vLLM server that trainings with `rollouts: vllm-server` use."""

import socket
from ipaddress import ip_address
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from stapo import paths
from stapo.files import text_of
from stapo.study import Study
from stapo.text import plain

SECONDS = 5.0
"""Timeout for the answer of a server on the network."""


def server_command(study: Study) -> str:
    """Return the command that starts the server of a study."""
    base = paths.BASE_MODEL.format(study=study.name, size=study.run.sizes[0])
    return f"trl vllm-serve --model {base} --host 127.0.0.1"


def server_remedy(study: Study) -> str:
    """Return what to do if the server of a study does not answer."""
    return f"start it on other GPUs: {server_command(study)}"


def server_fault(study: Study) -> str:
    """Return why the server of a study does not answer; empty if it does or none is needed."""
    if study.training.rollouts != "vllm-server":
        return ""
    return unreachable(f"{study.engine.vllm_server.rstrip('/')}/health")


def unreachable(url: str, below: int = 300) -> str:
    """Return why an address does not answer with a status below a bound; empty if it does."""
    try:
        with urlopen(url, timeout=SECONDS):
            return ""
    except HTTPError as error:
        return "" if error.code < below else plain(f"{url}: {error}")
    except (OSError, ValueError) as error:
        return plain(f"{url} does not answer: {getattr(error, 'reason', error)}")


def open_to_others(address: str) -> str:
    """Return why other machines may send requests or weights to a server; empty if they cannot."""
    found = urlsplit(address)
    try:
        loopback = ip_address(socket.gethostbyname(found.hostname or "")).is_loopback
    except (OSError, ValueError):
        loopback = False
    if not loopback:
        return (
            f"{address} is not a loopback address: other machines may send it requests and weights"
        )
    # TRL's server listens on all addresses by default.
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in text_of(table).splitlines()[1:]:
            host, port = line.split()[1].split(":")
            listens, every = line.split()[3] == "0A", set(host) == {"0"}
            if listens and every and int(port, 16) == found.port:
                what = "listens on all addresses of this machine"
                return f"{address} {what}: others may send it requests and weights"
    return ""
