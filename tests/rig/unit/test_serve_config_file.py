# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Options in a file are read as vLLM reads them, and looked at like typed ones."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support.made_parser import FORK
from tools.rig.base.errors import UsageError
from tools.rig.serve import config_child, config_file, flags
from tools.rig.serve.config_file import Typed

PYTHON = Path("/e/bin/python")


class Desk:
    """A file, and what the YAML reader says of it."""

    def __init__(self, folder: Path, fp: FakeProcess) -> None:
        self.folder, self.fp = folder, fp
        self.file = folder / "my c.yaml"
        self.file.write_text("anything: 1\n")

    def says(self, pairs: object, **more: Any) -> None:
        """Register the child's answer."""
        script = Path(config_file.__file__).with_name("config_child.py")
        self.fp.register(
            [os.fspath(PYTHON), "-I", os.fspath(script)],
            **{"stdout": json.dumps(pairs), **more},
        )

    def read(self, *rest: str) -> Typed:
        """Take words apart."""
        return config_file.taken_apart(rest, FORK, PYTHON, env={}, cwd=self.folder)


@pytest.fixture
def desk(tmp_path: Path, fp: FakeProcess) -> Desk:
    """Return a desk with a file."""
    return Desk(tmp_path, fp)


def test_no_file(desk: Desk) -> None:
    """Without a file the words stay, and nothing is started."""
    assert desk.read("--port", "1") == Typed(("--port", "1"))
    assert desk.read("--config") == Typed(("--config",))


@pytest.mark.parametrize(
    "words", [("--config", "my c.yaml"), ("--config=my c.yaml",), ("--conf=my c.yaml",)]
)
def test_keys_become_options(desk: Desk, words: tuple[str, ...]) -> None:
    """Each key is an option as vLLM makes it, and the file itself is named no more."""
    pairs = [
        ["port", 9001],
        ["host", "0.0.0.0"],
        ["enforce_eager", True],
        ["enable-prefix-caching", False],
        ["reasoning-parser", False],
        ["served-model-name", ["a", "b"]],
        ["cudagraph-capture-sizes", []],
        ["speculative-config", {"method": "mtp"}],
        ["max-num-seqs", None],
    ]
    desk.says(pairs)
    found = desk.read("--dtype", "half", *words, "--port", "1")
    assert found.rest == ("--dtype", "half", "--port", "1")
    assert found.file == desk.file
    read = flags.read(FORK, found.words)
    assert read.problems == ()
    assert [(given.flag, given.values) for given in read.given] == [
        ("--port", ("9001",)),
        ("--host", ("0.0.0.0",)),
        ("--enforce-eager", ()),
        ("--no-enable-prefix-caching", ()),
        ("--served-model-name", ("a", "b")),
        ("--speculative-config", ('{"method": "mtp"}',)),
        ("--max-num-seqs", ("None",)),
    ]


def test_what_is_no_file_of_options(desk: Desk) -> None:
    """What cannot be read, is no YAML, or is there twice is told before any start."""
    with pytest.raises(UsageError, match="--config is there twice"):
        desk.read("--config", "a.yaml", "--config=b.yaml")
    with pytest.raises(UsageError, match="must end in .yaml") as caught:
        desk.read("--config", "c.json")
    assert caught.value.hint.startswith("mv ")
    with pytest.raises(UsageError, match="cannot read .*none.yaml: No such file"):
        desk.read("--config", "none.yaml")
    os.mkfifo(desk.folder / "pipe.yml")
    with pytest.raises(UsageError, match="not a regular file"):
        desk.read("--config", "pipe.yml")
    desk.says(None)
    with pytest.raises(UsageError, match="holds no options"):
        desk.read("--config", desk.file.name)
    desk.says(None, stdout="", stderr="yaml.scanner.ScannerError: line 3\n")
    with pytest.raises(UsageError, match="holds no options") as caught:
        desk.read("--config", desk.file.name)
    assert "line 3" in caught.value.details[0]
    desk.says([[7, 1]])
    with pytest.raises(UsageError, match="7 in .* is no name"):
        desk.read("--config", desk.file.name)
    desk.file.write_bytes(b" " * (config_file.LARGEST + 1))
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        desk.read("--config", desk.file.name)


@pytest.mark.parametrize(
    ("data", "answer"),
    [({"a": 1, "b": [2]}, [["a", 1], ["b", [2]]]), ([1], None), (None, None)],
)
def test_the_child(
    data: object,
    answer: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The child prints keys in their order, and nothing for what is no table."""
    yaml = ModuleType("yaml")
    yaml.__dict__["safe_load"] = lambda stream: data if stream.read() == "x" else "?"
    monkeypatch.setitem(sys.modules, "yaml", yaml)
    monkeypatch.setattr(sys, "stdin", io.StringIO("x"))
    assert config_child.main() == 0
    assert json.loads(capsys.readouterr().out) == answer


@pytest.mark.parametrize(
    "pair",
    [
        ["config", "b.yaml"],
        ["conf", "b.yaml"],
        ["served-model-name", ["--config", "b.yaml"]],
        ["host", ["a", "--confi=b.yaml"]],
    ],
)
def test_a_file_in_the_file(desk: Desk, pair: list[Any]) -> None:
    """What vLLM would read without anybody having looked into it is refused."""
    desk.says([["port", 9001], pair])
    with pytest.raises(UsageError, match="names another file of options"):
        desk.read("--config", desk.file.name)
