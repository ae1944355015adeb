from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from pathlib import Path

from app.instance import Instance

_HOLDER = """
import sys
from pathlib import Path
from app.instance import Instance
instance = Instance(Path(sys.argv[1]))
assert instance.claim()
instance.announce(sys.argv[2])
print("claimed", flush=True)
sys.stdin.read()
"""


class _Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"app": "ringside"} if self.path == "/app/health" else {}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_a_second_start_learns_where_the_first_is_and_a_killed_first_leaves_no_claim(tmp_path: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path), url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"claimed\n"
    second = Instance(tmp_path)
    assert not second.claim()
    running = second.running()
    assert running is not None
    assert running.url == url
    holder.kill()
    holder.wait()
    assert second.claim()
    second.release()
    server.shutdown()
    server.server_close()
