# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A client that reads a streamed answer token by token, past every proxy."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator


class Stream:
    """One request for a chat and its answer."""

    def __init__(
        self,
        port: int,
        model: str,
        *,
        key: str = "",
        tls: ssl.SSLContext | None = None,
        timeout: float = 60.0,
    ) -> None:
        where = ("127.0.0.1", port)
        self.there = (
            http.client.HTTPSConnection(*where, timeout=timeout, context=tls)
            if tls
            else http.client.HTTPConnection(*where, timeout=timeout)
        )
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        message = {"role": "user", "content": "hello"}
        body = {
            "model": model,
            "stream": True,
            "messages": [message],
            "max_tokens": 32,
            "temperature": 0,
        }
        self.there.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        self.answer = self.there.getresponse()
        self.status = self.answer.status
        self.tokens = self._tokens()

    def token(self) -> str:
        """Return the next token as soon as it is there."""
        return next(self.tokens)

    def rest(self) -> list[str]:
        """Return all tokens that are left, and close."""
        try:
            return [*self.tokens]
        finally:
            self.close()

    def refused(self) -> int:
        """Return the status, and close."""
        self.close()
        return self.status

    def close(self) -> None:
        """Let go of the connection."""
        self.answer.close()
        self.there.close()

    def _tokens(self) -> Iterator[str]:
        while line := self.answer.readline():
            text = line.decode().strip().removeprefix("data: ")
            if not text.startswith("{"):
                continue
            for choice in json.loads(text).get("choices", ()):
                word = choice["delta"].get("content")
                if word:
                    yield word


def status_of(port: int, path: str) -> int:
    """Return the status that a GET is answered with."""
    there = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        there.request("GET", path)
        with there.getresponse() as answer:
            return answer.status
    finally:
        there.close()
