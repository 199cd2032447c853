# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Asks a server over HTTP: whether it lives, and whether sane text comes out.

With ``http.client`` itself, which knows of no proxy: the proxy variables of a user do
not concern a server on this machine.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.host import processes
from tools.rig.serve.record import ServerRecord

PROMPT = "The capital of France is"
_MOST_BYTES = 8 << 20
_LOOK_CLOSER = 16
"""Tokens of the second request, where the first left doubts."""


@dataclass(frozen=True)
class Answer:
    """What came back; ``status`` 0 means that nothing did, and ``problem`` says why."""

    status: int
    body: bytes = b""
    problem: str = ""
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether it is a 200."""
        return self.status == 200

    def json(self) -> Any:
        """Return the parsed body, or None."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True)
class Completion:
    """A completion: ``problem`` is empty when sane text came out.

    ``refused`` means that the server answered, and did so without trying (a wrong key,
    no such model): that says nothing about the engine. ``nonsense`` means that it did
    try, and what came out is no text.
    """

    problem: str
    text: str = ""
    seconds: float = 0.0
    timed_out: bool = False
    refused: bool = False
    nonsense: bool = False

    @property
    def ok(self) -> bool:
        """Whether sane text came out."""
        return not self.problem


def ask(
    record: ServerRecord,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    timeout: float,
    key: str = "",
) -> Answer:
    """Send one request and return the answer, whatever happens.

    Parameters
    ----------
    body
        Sent as JSON by POST; None asks by GET.
    timeout
        Seconds for the connection and for each piece of the answer.
    key
        The API key.
    """
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    there = http.client.HTTPConnection(record.address, record.port, timeout=timeout)
    try:
        there.request(
            "GET" if body is None else "POST",
            path,
            None if body is None else json.dumps(body),
            headers,
        )
        got = there.getresponse()
        return Answer(got.status, got.read(_MOST_BYTES))
    except TimeoutError:
        return Answer(0, problem=f"no answer within {timeout:.0f} s", timed_out=True)
    except (OSError, http.client.HTTPException) as exc:
        words = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
        return Answer(0, problem=words)
    finally:
        there.close()


def health(record: ServerRecord, timeout: float = 2.0) -> Answer:
    """Ask ``/health``: 200 with an empty body, 503 when the engine is dead."""
    return ask(record, "/health", timeout=timeout)


def completion(record: ServerRecord, *, timeout: float, key: str = "") -> Completion:
    """Have one token made, and a few more where one token is not enough to judge.

    A model that computes nonsense (NaN) answers 200 with ``!!!!`` or with nothing: the
    first entry of the vocabulary again and again.

    Parameters
    ----------
    timeout
        Seconds for all of it.
    """
    start = time.monotonic()
    text = ""
    for tokens in (1, _LOOK_CLOSER):
        left = timeout - (time.monotonic() - start)
        if left <= 0:
            return Completion(f"no token within {timeout:.0f} s", timed_out=True)
        answer = ask(
            record,
            "/v1/completions",
            {
                "model": record.served_name,
                "prompt": PROMPT,
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
            },
            timeout=left,
            key=key,
        )
        seconds = time.monotonic() - start
        if not answer.ok:
            return _failed(answer, seconds, timeout)
        text = _text(answer)
        if not doubtful(text):
            return Completion("", text, seconds)
    shown = repr(text[:40])
    return Completion(
        f"what comes out is no text but {shown}", text, seconds, nonsense=True
    )


def doubtful(text: str) -> bool:
    """Say whether a text is what a model that computes NaN would answer."""
    bare = text.replace("\ufffd", "").strip()
    return not bare or set(bare) == {"!"}


def key_of(record: ServerRecord, env: Mapping[str, str] | None = None) -> str:
    """Return the API key: from its file, the server's environment, or ours."""
    env = os.environ if env is None else env
    if record.api_key_file:
        return read_key(Path(record.api_key_file))
    name = "VLLM_API_KEY"
    return processes.variable(record.pid, name) or env.get(name, "")


def read_key(file: Path) -> str:
    """Return the first line of a key file, or "" where it cannot be read."""
    try:
        lines = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return ""
    return lines[0] if lines else ""


def _failed(answer: Answer, seconds: float, timeout: float) -> Completion:
    if answer.timed_out:
        return Completion(
            f"no token within {timeout:.0f} s", seconds=seconds, timed_out=True
        )
    if not answer.status:
        return Completion(answer.problem, seconds=seconds)
    body = answer.json()
    said = ""
    if isinstance(body, Mapping):
        error = body.get("error", body.get("message", body.get("detail", "")))
        said = str(error.get("message", "") if isinstance(error, Mapping) else error)
    problem = f"HTTP {answer.status}" + (f": {said[:200]}" if said else "")
    return Completion(
        problem, seconds=seconds, refused=answer.status in (400, 401, 403, 404, 429)
    )


def _text(answer: Answer) -> str:
    body = answer.json()
    try:
        choice = body["choices"][0]
        # told to stop while this request ran, it answers 200 all the same
        aborted = choice.get("finish_reason") == "abort"
        return "" if aborted else str(choice["text"])
    except (TypeError, KeyError, IndexError, AttributeError):
        return ""
