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
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.errors import UsageError
from tools.rig.host import processes
from tools.rig.serve import foreign
from tools.rig.serve.record import ServerRecord

KEY = "VLLM_API_KEY"
"""The variable by which a server gets its key."""

PROMPT = "The capital of France is"
_MOST_BYTES = 8 << 20
_KEY_BYTES = 4096
_WHITE = " \t\r\n"
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
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True)
class Completion:
    """A completion: ``problem`` is empty when sane text came out.

    ``refused`` means that the server answered, and did so without trying (a wrong key,
    no such model): that says nothing about the engine. ``nonsense`` means that it did
    try, and what came out is no text. ``status`` is that of the answer; 0: unknown.
    """

    problem: str
    text: str = ""
    seconds: float = 0.0
    timed_out: bool = False
    refused: bool = False
    nonsense: bool = False
    status: int = 0

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
    opened: Callable[[http.client.HTTPConnection], None] = lambda there: None,
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
    opened
        Gets the connection, by which the request can be ended from elsewhere.
    """
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    there = http.client.HTTPConnection(record.address, record.port, timeout=timeout)
    opened(there)
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
    except ValueError:
        # its words would show the key
        return Answer(0, problem="the API key cannot be sent in an HTTP header")
    except (OSError, http.client.HTTPException) as exc:
        words = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
        return Answer(0, problem=words)
    finally:
        there.close()


def health(record: ServerRecord, timeout: float = 2.0) -> Answer:
    """Ask ``/health``: 200 with an empty body, 503 when the engine is dead."""
    return ask(record, "/health", timeout=timeout)


def completion(
    record: ServerRecord,
    *,
    timeout: float,
    key: str = "",
    opened: Callable[[http.client.HTTPConnection], None] = lambda there: None,
) -> Completion:
    """Have one token made, and a few more where one token is not enough to judge.

    A model that computes nonsense (NaN) answers 200 with ``!!!!`` or with nothing: the
    first entry of the vocabulary again and again.

    Parameters
    ----------
    timeout
        Seconds for all of it.
    opened
        See :func:`ask`.
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
            opened=opened,
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
    """Return the API key: from its file, the server's environment, or ours.

    Raises
    ------
    UsageError
        See :func:`read_key`.
    """
    env = os.environ if env is None else env
    if record.api_key_file:
        return read_key(Path(record.api_key_file))
    return processes.variable(record.pid, KEY) or env.get(KEY, "")


def key_for(record: ServerRecord) -> tuple[str, str]:
    """Return a server's API key, and what is wrong with the file that holds it."""
    try:
        key = key_of(record)
    except UsageError as exc:
        return "", exc.what
    missing = bool(record.api_key_file) and not key
    return key, f"there is no key in {record.api_key_file}" if missing else ""


def key_fault(record: ServerRecord, wrong: str, said: Completion | None) -> str:
    """Return what is wrong with a server's key file, or "".

    Somebody else's file is private, and being kept out of it says nothing.

    Parameters
    ----------
    wrong
        What :func:`key_for` said of the file.
    said
        The answer to its key.
    """
    if not record.api_key_file or os.geteuid() not in (0, record.uid):
        return ""
    if not wrong and said is not None and said.status in (401, 403):
        return f"the key in {record.api_key_file} is not the one that it wants"
    return wrong


def read_key(file: Path) -> str:
    """Return the one word of a key file; "" where there is no file, or nothing in it.

    Everything that uses such a file reads it here.

    Raises
    ------
    UsageError
        When it cannot be read, is no regular file, or holds what is no key; its
        content is never shown.
    """
    hint = "write one line with the key, and nothing else, into it"
    try:
        # opening a pipe would wait for somebody who writes
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            regular = stat.S_ISREG(os.fstat(fd).st_mode)
            data = os.read(fd, _KEY_BYTES + 1) if regular else b""
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as exc:
        raise UsageError(
            f"cannot read the key in {file}: {exc.strerror}", hint=hint
        ) from exc
    problem = "" if regular else "it is no regular file"
    text, fault = _one_word(data)
    if problem or fault:
        raise UsageError(
            f"there is no usable key in {file}: {problem or fault}", hint=hint
        )
    return text


def _one_word(data: bytes) -> tuple[str, str]:
    """Return the word that a key file holds, or why that is no key."""
    if len(data) > _KEY_BYTES:
        return "", f"it has more than {_KEY_BYTES} bytes"
    try:
        word = data.decode("utf-8").strip(_WHITE)
        word.encode("latin-1")
    except UnicodeError:
        return "", "it holds letters that an HTTP header cannot carry"
    if any(letter in word for letter in _WHITE):
        return "", "it holds more than one word"
    if not word.isprintable():
        return "", "it holds control characters"
    return word, ""


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
    problem = f"HTTP {answer.status}" + (
        f": {foreign.escaped(said[:200])}" if said else ""
    )
    return Completion(
        problem,
        seconds=seconds,
        refused=answer.status in (400, 401, 403, 404, 429),
        status=answer.status,
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
