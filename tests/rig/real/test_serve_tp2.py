# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Options read as real vLLM's own parser reads them, and a whole start from words."""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support import tiny_model, vllm_cpu
from tests.rig.unit.test_serve_flags import BAD, GOOD
from tools.rig.base.console import Console
from tools.rig.base.errors import UsageError
from tools.rig.base.state import StateRoot
from tools.rig.host import processes
from tools.rig.serve import config_file, flags, parser, presets
from tools.rig.serve import record as records
from tools.rig.serve.parser import Parser
from tools.rig.steps.serve_stop import serve_stop
from tools.rig.steps.serve_tp2 import serve_tp2

pytestmark = pytest.mark.real

_JUDGE = """
import json, sys
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))
out = []
for line in json.loads(sys.argv[1]):
    try:
        parser.parse_args(["serve", "model", *line.split()])
        out.append("")
    except SystemExit:
        out.append("refused")
    except Exception as exc:
        out.append(type(exc).__name__)
print(json.dumps(out))
"""
_NOT_THERE = ("--window", "V100", "v100", "V10", "--host.")
"""What the made parser of the unit tests has and this vLLM has not; and an unknown
backend and a part of a plain option, which it refuses or misreads only later."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> StateRoot:
    """Return a state root."""
    return StateRoot(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def python() -> Path:
    """Return the interpreter of an environment with vLLM."""
    return vllm_cpu.environment() / "bin" / "python"


@pytest.fixture(scope="module")
def known(python: Path, root: StateRoot) -> Parser:
    """Return what this vLLM takes, asked as a start does."""
    return parser.ask(python, root)


def test_real_vllm_says_what_it_takes(
    python: Path, root: StateRoot, known: Parser
) -> None:
    """All of its options are known after one look, and the second look is quick."""
    assert len(known.options) > 200
    assert known.device == "cpu"
    assert {"VLLM_LOGGING_LEVEL", "VLLM_API_KEY"} <= known.variables
    assert known.takes("--dtype", "half") and not known.takes("--dtype", "bf16")
    assert len(known.backends) > 5
    start = time.monotonic()
    assert parser.ask(python, root) == known
    assert time.monotonic() - start < 2


def test_read_as_vllm_reads(python: Path, known: Parser) -> None:
    """Lines that vLLM's own parser takes are taken, and those it refuses refused."""
    lines = [
        line
        for line in (*GOOD, *(line for line, _, _ in BAD))
        if not any(word in line for word in _NOT_THERE)
    ]
    got = subprocess.run(
        [python, "-I", "-c", _JUDGE, json.dumps(lines)],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=300,
    )
    theirs = json.loads(got.stdout.splitlines()[-1])
    ours = [bool(flags.read(known, line.split()).problems) for line in lines]
    differ = [
        (line, their)
        for line, our, their in zip(lines, ours, theirs, strict=True)
        if our != bool(their)
    ]
    assert differ == []


_LOADED = """
import json, sys
from vllm.utils.argparse_utils import FlexibleArgumentParser
print(json.dumps(FlexibleArgumentParser().load_config_file(sys.argv[1])))
"""
_FILE = """
port: 9001
max_model_len: 8k
served-model-name: [a, "b c"]
enforce-eager: true
speculative-config:
  method: ngram
  num_speculative_tokens: 3
gpu-memory-utilization: 0.5
host: "::1"
seed: null
"""


def test_a_file_is_taken_apart_as_vllm_does(
    python: Path, known: Parser, tmp_path: Path
) -> None:
    """The options in a file of --config are those that vLLM itself finds in it."""
    file = tmp_path / "of mine.yaml"
    file.write_text(_FILE)
    found = config_file.taken_apart(
        ["--config", file.name], known, python, env={**os.environ}, cwd=tmp_path
    )
    got = subprocess.run(
        [python, "-I", "-c", _LOADED, file],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=300,
    )
    theirs = json.loads(got.stdout.splitlines()[-1])
    ours = [
        (one.option.dest, one.values) for one in flags.read(known, found.words).given
    ]
    assert len(ours) == 8
    assert ours == [
        (one.option.dest, one.values) for one in flags.read(known, theirs).given
    ]


def test_presets_in_real_vllm(known: Parser) -> None:
    """Every option of every preset is one of this vLLM too, with a value it takes."""
    for preset in presets.known():
        assert flags.read(known, preset.words).problems == ()
        assert flags.read(known, preset.instead).problems == ()


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Path]:
    """Return a tiny model."""
    yield tiny_model.write(tmp_path / "tiny")


def test_nothing_starts_with_a_wrong_option(
    model: Path, python: Path, root: StateRoot
) -> None:
    """A wrong option ends at once, with the nearest real one, and leaves nothing."""
    with pytest.raises(UsageError) as caught:
        serve_tp2(
            Console(io.StringIO(), env={}),
            None,
            root,
            model=str(model),
            environment=str(python.parent.parent),
            tp="1",
            port=str(vllm_cpu.free_port()),
            rest=["--enforce-eagr"],
        )
    assert caught.value.hint == "did you mean --enforce-eager?"
    assert records.listing(root) == []


def test_from_words_to_a_token(
    model: Path, python: Path, root: StateRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is typed becomes a server that has spoken, isolated from where we stand."""
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.chdir(Path(__file__).parents[3])
    said = io.StringIO()
    done = serve_tp2(
        Console(said, env={}),
        None,
        root,
        model=str(model),
        environment=str(python.parent.parent),
        tp="1",
        port=str(vllm_cpu.free_port()),
        name="words",
        timeout="300",
        rest=["--max-model-len=512", "--max_num_seqs", "8", "--enforce-eager"],
    )
    try:
        assert done.text and done.served_name == "tiny"
        words = processes.cmdline(done.pid)
        assert words[1:5] == ["-I", "-m", "vllm.entrypoints.cli.main", "serve"]
    finally:
        stopped = serve_stop(Console(io.StringIO(), env={}), root, "words")
    assert done.pid in stopped.ended and records.listing(root) == []
