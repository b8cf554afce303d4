"""A download from a Hub that fails and breaks off, for real: a server of our own, the Hub's own client."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COMMIT = "1" * 40
FILES = {
    "config.json": b"{}",
    "model.safetensors": bytes(range(256)) * 160_000,  # 41 MB; half comes at first
    "evil.py": b"raise SystemExit",
    "pytorch_model.bin": b"pickle",
}
TREE = [
    {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
    for name, content in FILES.items()
]
GET = """
import json, sys
from pathlib import Path
from stapo.models.base import cached, write_base
from stapo.study.sources import HubModel
path = cached(HubModel(hub="some/model", revision=sys.argv[1]))
print(json.dumps([str(path), sorted(p.name for p in path.iterdir())]))
write_base({"hub": "some/model", "revision": sys.argv[1]}, Path(sys.argv[2]))
"""


class Hub(BaseHTTPRequestHandler):
    """Every address fails the first time; the weights break off the first time that they come."""

    protocol_version = "HTTP/1.1"
    seen: Counter[str]
    ranges: list[str]

    def do_GET(self) -> None:
        self.answer(body=True)

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def answer(self, body: bool) -> None:
        key = f"{self.command} {self.path}"
        self.seen[key] += 1
        name = self.path.rsplit("/", 1)[1]
        if self.seen[key] == 1:
            self.reply(503, b"", {})
        elif "/tree/" in self.path:
            self.reply(200, json.dumps(TREE).encode(), {"Content-Type": "application/json"})
        elif self.path.startswith("/api/"):
            siblings = ",".join(f'{{"rfilename": "{file}"}}' for file in FILES)
            info = f'{{"id": "some/model", "sha": "{COMMIT}", "siblings": [{siblings}]}}'
            self.reply(200, info.encode(), {"Content-Type": "application/json"})
        else:
            self.file(name, body, self.seen[key] == 2)

    def file(self, name: str, body: bool, first: bool) -> None:
        content = FILES[name]
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        wanted = self.headers.get("Range")
        start = 0
        if wanted:
            self.ranges.append(wanted)
            start = int(wanted.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        content = content[start:]
        if body and name == "model.safetensors" and first:
            self.reply(200, content, headers, cut=len(content) // 2)
        else:
            self.reply(206 if wanted else 200, content if body else b"", headers, len(content))

    def reply(
        self, status: int, content: bytes, headers: dict[str, str], length: int = 0, cut: int = 0
    ) -> None:
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(length or len(content)))
        self.end_headers()
        self.wfile.write(content[: cut or len(content)])
        if cut:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[tuple[str, type[Hub]]]:
    handler = type("OneHub", (Hub,), {"seen": Counter(), "ranges": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", handler
    server.shutdown()


@pytest.mark.parametrize("revision", [COMMIT, "main"])
def test_a_download_outlives_failures_and_goes_on_where_it_broke_off(hub, tmp_path, revision):
    address, handler = hub
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("HF_")},
        **{"HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"},
        "no_proxy": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", GET, revision, str(tmp_path / "base")],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    path, names = json.loads(done.stdout.splitlines()[-1])
    assert names == ["config.json", "model.safetensors"]
    assert Path(path).name == COMMIT
    assert (Path(path) / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    # Nothing that came was asked for twice.
    (wanted,) = handler.ranges
    assert int(wanted.removeprefix("bytes=").rstrip("-")) >= len(FILES["model.safetensors"]) // 4
    # Whatever was asked for, the commit is written down.
    source = json.loads((tmp_path / "base" / "source.json").read_text())
    assert source == {"hub": "some/model", "revision": revision, "commit": COMMIT}
