# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A program that answers like a model server within a tenth of a second.

Run as ``python fake_server.py PORT WORD...``; the words are its faults: ``nan``,
``void`` (answers nothing), ``hang`` (completions), ``die`` (at once, with status 3),
``deaf`` (to SIGTERM), ``silent`` (never listens), ``busy`` (requests run and tokens
flow), ``stuck`` (requests run and none flow), ``child`` (starts a helper), ``refuse``
(401), ``late`` (a token takes two seconds), ``broken`` (500), ``sick`` (/health says
503), ``mute`` (no /metrics), ``twice`` (a first token that leaves doubts), ``chatty``
(a line in its log for each completion).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = set(sys.argv[2:])
START = time.monotonic()
asked = 0


class Handler(BaseHTTPRequestHandler):
    """Answers as told."""

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer /health and /metrics."""
        if self.path == "/health":
            self._say(503 if "sick" in WORDS else 200, b"")
            return
        busy = WORDS & {"busy", "stuck"}
        made = int((time.monotonic() - START) * 1000) if "busy" in WORDS else asked
        text = (
            "# HELP x y\n"
            f'vllm:num_requests_running{{engine="0"}} {2.0 if busy else 0.0}\n'
            f'vllm:num_requests_waiting{{engine="0"}} {1.0 if busy else 0.0}\n'
            'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
            f'vllm:prompt_tokens_total{{engine="0"}} 7\n'
            f'vllm:generation_tokens_total{{engine="0"}} {made}\n'
        )
        self._say(404 if "mute" in WORDS else 200, text.encode())

    def do_POST(self) -> None:
        """Answer a completion."""
        global asked
        size = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(size))
        while "hang" in WORDS:
            time.sleep(0.1)
        if "late" in WORDS:
            time.sleep(2)
        if "refuse" in WORDS:
            self._say(401, b'{"error": "Unauthorized"}')
            return
        if "broken" in WORDS:
            self._say(500, b'{"error": {"message": "EngineCore encountered an issue"}}')
            return
        asked += 1
        if "chatty" in WORDS:
            print(f"completion {asked}", flush=True)
        text = "!" * body["max_tokens"] if "nan" in WORDS else "Paris"
        text = "" if "void" in WORDS else text
        if "twice" in WORDS and body["max_tokens"] == 1:
            text = "\ufffd"
        choice = {"text": text, "finish_reason": "length"}
        self._say(200, json.dumps({"choices": [choice]}).encode())

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve until told to stop."""
    print("INFO version 0.99.1", flush=True)
    print(f"key is {os.environ.get('VLLM_API_KEY')}", flush=True)
    if "die" in WORDS:
        print("ValueError: a fault that nobody knows", flush=True)
        sys.exit(3)
    handler = signal.SIG_IGN if "deaf" in WORDS else lambda *_: os._exit(0)
    signal.signal(signal.SIGTERM, handler)
    if "child" in WORDS:
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    print("Starting to load model tiny", flush=True)
    while "silent" in WORDS:
        time.sleep(0.1)
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.daemon_threads = True
    print("Application startup complete.", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
