# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A server that streams tokens as vLLM does, in a thread of the test.

It sends a token when the test says so: what arrives before the next one was made did
not wait in anybody's buffer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("one", "two", "three")
_WAIT_S = 60.0


class StandIn:
    """One server.

    Attributes
    ----------
    asked
        The bodies of the completions that it was asked for.
    keys
        Their ``Authorization`` headers.
    made
        Counts the tokens that may be sent.
    breaks
        The connection ends after the first token.
    """

    def __init__(self, model: str, *, held: bool = False, breaks: bool = False) -> None:
        self.model = model
        self.breaks = breaks
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.made = threading.Semaphore(0 if held else 1_000_000)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.port = int(self.server.server_address[1])

    def go_on(self, tokens: int = 1) -> None:
        """Let so many tokens out."""
        self.made.release(tokens)


@contextmanager
def serving(*servers: StandIn) -> Iterator[None]:
    """Run servers until the block ends."""
    threads = [
        threading.Thread(target=one.server.serve_forever, args=(0.05,), daemon=True)
        for one in servers
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one in servers:
            one.go_on(1_000)
            one.server.shutdown()
            one.server.server_close()


def _handler(owner: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            """Answer /health and the list of models."""
            models = {"object": "list", "data": [{"id": owner.model}]}
            body = json.dumps(models).encode() if "models" in self.path else b""
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            """Stream a completion, each token when it may be sent."""
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            owner.asked.append(body)
            owner.keys.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at, word in enumerate(WORDS):
                if not owner.made.acquire(timeout=_WAIT_S):
                    return
                self._send(json.dumps(_chunk(owner.model, word)))
                if owner.breaks and at == 0:
                    self.close_connection = True
                    return
            self._send("[DONE]")
            self.wfile.write(b"0\r\n\r\n")

        def _send(self, text: str) -> None:
            data = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    return Handler


def _chunk(model: str, word: str) -> dict[str, Any]:
    delta = {"role": "assistant", "content": word}
    return {
        "id": "chunk",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }
