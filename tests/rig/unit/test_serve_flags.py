# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Options and variables against what an installed vLLM says of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support.made_parser import FORK
from tools.rig.base.errors import CannotError
from tools.rig.base.state import StateRoot
from tools.rig.serve import flags, parser, parser_child, variables

GOOD = [
    "",
    "--max-model-len 8k",
    "--max-model-len auto",
    "--max-model-len -1",
    "--max_model_len=8192",
    "--max-num-batched-tokens None",
    "--max-num-batched-tokens 16K",
    "-tp 2 -pp=1",
    "--enforce-eager --no-enable-prefix-caching",
    "--attention-backend flash_attn_v100",
    "--attention-backend auto",
    '--speculative-config {"method":"mtp"}',
    "--speculative-config.method mtp --speculative-config.tokens=4",
    "--limit-mm-per-prompt {}",
    "-O3",
    "-O=3",
    "-O 3",
    "--cudagraph-capture-sizes 1 2 4",
    "--served-model-name a b --port 1",
    "--reasoning-parser --port 1",
    "--tensor 2",
    "--window 1 2",
    "--gpu-memory-utilization .9",
]


@pytest.mark.parametrize("line", GOOD)
def test_what_the_parser_takes(line: str) -> None:
    """What vLLM's own parser would take is taken."""
    assert flags.read(FORK, line.split()).problems == ()


BAD = [
    ("--enforce-eagr", "no option --enforce-eagr", "--enforce-eager"),
    ("--max-num-seq 4 x", "x belongs to no option", "begin with dashes"),
    ("model", "model belongs to no option", "--model"),
    ("--use-v2-block-manager", "gone since vLLM 0.10.2", "leave it out"),
    ("--enable-nvlink-optimization", "no version of vLLM ever had it", "leave it out"),
    ("--zzzz 5", "no option --zzzz", "leave it out"),
    ("--foo-bar=1", "no option --foo-bar", "leave it out"),
    ("--insecure", "no option --insecure", "leave it out"),
    ("--prot 1", "no option --prot", "did you mean --port?"),
    ("--help", "--help starts no server", "vllm serve --help"),
    ("--help=all", "--help starts no server", "vllm serve --help"),
    ("--version", "--version starts no server", "vllm --version"),
    ("--max 5", "may be any of --max-model-len", "write it out"),
    ("--dtype flaot16", "cannot be flaot16 in vLLM 1.3.0", "--dtype float16"),
    ("--dtype 7", "cannot be 7", "one of auto, bfloat16"),
    ("--dtype", "--dtype needs a value", "one of auto"),
    ("--attention-backend FLASH_ATTN_V10", "cannot be", "FLASH_ATTN_V100"),
    ("--max-num-seqs 1.5", "wants a whole number, not 1.5", "--max-num-seqs 1"),
    ("--gpu-memory-utilization high", "wants a number, not high", "0.9"),
    ("--speculative-config mtp", "wants JSON, not mtp", '{"KEY": "VALUE"}'),
    ("--max-model-len 8q", "(also 8k or 8K)", "8192"),
    ("--enforce-eager=1", "takes no value, not 1", "--enforce-eager"),
    ("--host --port 1", "--host needs a value", "--host VALUE"),
    ("--speculative-config.method", "needs a value", "--speculative-config.method"),
    ("--host.name x", "--host has no parts", "--host VALUE"),
    ("--window 1", "--window needs a value", "--window VALUE"),
]


@pytest.mark.parametrize(("line", "what", "hint"), BAD)
def test_what_the_parser_refuses(line: str, what: str, hint: str) -> None:
    """What vLLM would refuse is told in words, with the nearest that it has."""
    found = flags.read(FORK, line.split()).problems
    assert what in found[0].what
    assert hint in found[0].hint


def test_everything_wrong_is_told_at_once() -> None:
    """One wrong option hides no other, and its value is no fault of its own."""
    words = ["--zzzz", "5", "--dtype", "bad", "--max-num-seqs", "many", "--port", "1"]
    read = flags.read(FORK, words)
    assert len(read.problems) == 3
    assert read.last("port") is not None
    assert read.last("host") is None


def test_the_last_one_counts() -> None:
    """An option that is typed twice has its last value."""
    read = flags.read(FORK, ["--port", "1", "--port=2", "-sc.x", "1"])
    last = read.last("port")
    assert last is not None and last.value == "2"
    assert read.dests() == {"port", "speculative_config"}
    assert flags.read(FORK, ["--reasoning-parser"]).given[0].value == ""


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("--gpu_memory_utilization 0.5", "--gpu-memory-utilization 0.5"),
        ("--gpu_memory_utilization=0.5", "--gpu-memory-utilization=0.5"),
        ("--gpu_mem=0.5", "--gpu-memory-utilization=0.5"),
        ("--speculative_config.a_b=c_d", "--speculative-config.a_b=c_d"),
        ("--served_model_name a_b c_d", "--served-model-name a_b c_d"),
        ("-O3", "-O3"),
        ("-tp 2", "-tp 2"),
    ],
)
def test_names_are_written_out(line: str, whole: str) -> None:
    """An option has one name in a command, however it was typed; values stay."""
    [given] = flags.read(FORK, line.split()).given
    assert " ".join(given.words) == whole


def test_variables_that_do_nothing() -> None:
    """Variables of older guides and typing errors are named, others pass."""
    names = {
        *("VLLM_USE_V1", "VLLM_LOGING_LEVEL", "VLLM_QQQQ"),
        *("VLLM_API_KEY", "VLLM_READ_BY_A_FILE", "HOME"),
    }
    found = variables.problems(names, FORK)
    assert [problem.level for problem in found] == ["note"] * 3
    assert "knows no variable VLLM_LOGING_LEVEL" in found[0].what
    assert found[0].hint == "did you mean VLLM_LOGGING_LEVEL?"
    assert found[1].hint == "unset VLLM_QQQQ"
    assert "gone since vLLM 0.11.2" in found[2].what
    assert variables.problems(names, replace(FORK, variables=frozenset())) == []


REAL = (
    *("-ep", "-ac", "-tp", "--uds", "--seed", "--revision", "--root-path", "--runner"),
    *("--headless", "--model", "--host", "--port", "--log-level", "--max-num-seqs"),
    *("--max-model-len", "--served-model-name", "--node-rank", "--ubatch-size"),
    *("--api-key", "--numa-bind-cpus", "--dtype", "--tensor-parallel-size"),
)
"""Flags of a real vLLM, among them those that unrelated words are most like."""

UNRELATED = "nested foo-bar threads user watch batch path show list name version help"
MISTYPED = {
    "--prot": "--port",
    "--modle": "--model",
    "--dtpye": "--dtype",
    "--served-name": "--served-model-name",
    "--max-context-len": "--max-model-len",
    "--tensor-parallel": "--tensor-parallel-size",
    "-tensor-parallel-size": "--tensor-parallel-size",
}


def test_only_what_is_nearly_it_is_suggested() -> None:
    """A word that is merely of the same letters brings no advice; a slip does."""
    for word in UNRELATED.split():
        assert flags.nearest_name(f"--{word}", REAL) == [], word
    for word, meant in MISTYPED.items():
        assert flags.nearest_name(word, REAL) == [meant]
    known = ("VLLM_PORT", "VLLM_IMAGE_TAG", "VLLM_CACHE_ROOT", "NVCC_THREADS")
    for word in ("VLLM_FOO_BAR", "VLLM_MY_TEST", "VLLM_THREADS"):
        assert flags.nearest_name(word, known, "VLLM_") == []
    assert flags.nearest_name("VLLM_CACHEROOT", known, "VLLM_") == ["VLLM_CACHE_ROOT"]


def test_variables_for_a_hunt_exist() -> None:
    """Of the debug variables those are offered that the installed vLLM has."""
    assert set(variables.for_debugging(FORK)) == {
        *("VLLM_LOGGING_LEVEL", "NCCL_DEBUG", "CUDA_LAUNCH_BLOCKING")
    }


ANSWER: dict[str, Any] = {
    "schema": parser_child.SCHEMA,
    "version": "9.9",
    "device": "cuda",
    "backends": ["A"],
    "variables": ["VLLM_A"],
    "named": [],
    "options": [
        {
            **{"flags": ["-x", "--xx"], "dest": "xx", "kind": "str"},
            **{"optional": False, "nargs": None, "choices": ["a"], "default": "a"},
        }
    ],
}


def environment(folder: Path) -> Path:
    """Return the interpreter of an environment with a vLLM that is only files."""
    site = folder / "lib/python3.12/site-packages"
    for file in ("vllm/envs.py", "vllm-1.dist-info/METADATA", "vllm/config/cache.py"):
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).touch()
    (folder / "bin").mkdir()
    (folder / "bin" / "python").touch()
    return folder / "bin" / "python"


def child(fp: FakeProcess, python: Path, **what: Any) -> None:
    """Say what the environment's Python answers."""
    script = Path(parser.__file__).with_name("parser_child.py")
    fp.register([os.fspath(python), "-I", os.fspath(script)], **what)


def test_asked_once_for_a_build(tmp_path: Path, fp: FakeProcess) -> None:
    """The answer is kept until something of what is installed changes."""
    python, root = environment(tmp_path / "e"), StateRoot(tmp_path / "root")
    said = f"INFO chatter\n{json.dumps(ANSWER)}\n"
    child(fp, python, stdout=said)
    first = parser.ask(python, root, env={})
    assert first.version == "9.9" and first.has("--xx") and first.takes("-x", "a")
    assert not first.takes("-x", "b") and not first.takes("-y", "b")
    assert first.options[0].name == "--xx"
    assert first.command == f"{tmp_path}/e/bin/vllm"
    assert parser.ask(python, root, env={}) == first
    site = tmp_path / "e/lib/python3.12/site-packages"
    (site / "vllm/envs.py").write_text("# edited\n")
    child(fp, python, stdout=said.replace("9.9", "9.10"))
    assert parser.ask(python, root, env={}).version == "9.10"
    child(fp, python, stdout=said)
    assert parser.ask(python, None, env={}).version == "9.9"


def test_an_editable_build_has_a_stamp_of_its_sources(tmp_path: Path) -> None:
    """Editing the sources of an editable install changes the stamp."""
    site = environment(tmp_path / "e").parents[1] / "lib/python3.12/site-packages"
    before = parser.stamp(tmp_path / "e")
    (tmp_path / "src/vllm").mkdir(parents=True)
    (tmp_path / "src/vllm/envs.py").touch()
    (site / "vllm.pth").write_text(f"import nothing\n{tmp_path / 'src'}\n")
    by_path = parser.stamp(tmp_path / "e")
    (site / "vllm.pth").unlink()
    url = {"url": f"file://{tmp_path / 'src'}", "dir_info": {"editable": True}}
    (site / "vllm-1.dist-info/direct_url.json").write_text(json.dumps(url))
    by_url = parser.stamp(tmp_path / "e")
    (tmp_path / "src/vllm/envs.py").write_text("# edited\n")
    edited = parser.stamp(tmp_path / "e")
    assert len({before, by_path, by_url, edited}) == 4
    assert parser.stamp(tmp_path / "nothing") == ""


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"stderr": "No module named 'vllm'\n", "returncode": 1}, "there is no vLLM"),
        ({"stderr": "ImportError: libcuda\n", "returncode": 1}, "cannot be imported"),
        ({"stdout": "{}\n"}, "does not say which options"),
        ({"stdout": '{"schema": 1, "options": 3, "version": ""}\n'}, "does not say"),
    ],
)
def test_a_vllm_that_says_nothing(
    tmp_path: Path, fp: FakeProcess, how: dict[str, Any], what: str
) -> None:
    """An environment without a vLLM that can be imported is named before any start."""
    python = environment(tmp_path)
    child(fp, python, **how)
    with pytest.raises(CannotError, match=what):
        parser.ask(python, env={})


def test_an_import_that_takes_for_ever(tmp_path: Path, fp: FakeProcess) -> None:
    """A disk that does not answer is named as what took the time."""
    python = environment(tmp_path)

    def late(process: Any) -> None:
        raise subprocess.TimeoutExpired("python", 9)

    child(fp, python, callback=late)
    with pytest.raises(CannotError, match="took more than 9 s"):
        parser.ask(python, env={}, timeout=9)
    with pytest.raises(CannotError, match="no interpreter"):
        parser.ask(tmp_path / "none", env={})


def test_a_broken_answer_is_asked_anew(tmp_path: Path, fp: FakeProcess) -> None:
    """An answer that was kept and cannot be read, or is of another form, is dropped."""
    python, root = environment(tmp_path / "e"), StateRoot(tmp_path / "root")
    kept = root.path / "servers/parsers" / f"{parser.stamp(tmp_path / 'e')}.json"
    kept.parent.mkdir(parents=True)
    for text in ("{broken", '{"schema": 0}'):
        kept.write_text(text)
        child(fp, python, stdout=json.dumps(ANSWER))
        assert parser.ask(python, root, env={}).version == "9.9"


def test_what_converters_are_called() -> None:
    """The child sees through vLLM's wrappers to what a word is turned into."""

    def optional_type(return_type: Any) -> Any:
        return lambda word: None if word == "None" else return_type(word)

    def parse_dataclass(word: str) -> Any:
        return word

    assert parser_child.kind_of(None) == ("str", False)
    assert parser_child.kind_of(int) == ("int", False)
    assert parser_child.kind_of(json.loads) == ("json", False)
    assert parser_child.kind_of(parse_dataclass) == ("json", False)
    assert parser_child.kind_of(print) == ("other", False)
    assert parser_child.kind_of(optional_type(float)) == ("float", True)
    assert parser_child.kind_of(lambda word: word) == ("other", False)


@pytest.fixture
def fake_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Put a vLLM of a few lines on the path of the child."""
    import argparse

    class Serve:
        def subparser_init(self, subparsers: Any) -> Any:
            made = subparsers.add_parser("serve")
            made.add_argument("model_tag", nargs="?")
            made.add_argument("--dtype", choices=["half"], default="half")
            return made

    package = tmp_path / "site/vllm"
    package.mkdir(parents=True)
    (package / "envs.py").write_text('"VLLM_LISTED" "VLLM_READ"\n')
    (package / "empty.py").touch()
    here = SimpleNamespace(is_unspecified=lambda: False, device_type="cuda")
    parts: dict[str, Any] = {
        "vllm": {"__version__": "7"},
        "vllm.platforms": {"current_platform": here},
        "vllm.platforms.cpu": {"CpuPlatform": lambda: "cpu"},
        "vllm.utils": {"FlexibleArgumentParser": argparse.ArgumentParser},
        "vllm.entrypoints.cli.serve": {"ServeSubcommand": Serve},
        "vllm.envs": {
            "__file__": os.fspath(package / "envs.py"),
            "environment_variables": {"VLLM_LISTED": 1},
        },
        "vllm.attention.backends.registry": {
            "_Backend": SimpleNamespace(__members__={"B": 1, "A": 2})
        },
    }
    for name, inside in parts.items():
        module = ModuleType(name)
        module.__dict__.update(inside)
        monkeypatch.setitem(sys.modules, name, module)
    return parts


def test_the_child_tells(
    fake_vllm: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """The child prints options, backends, listed and read variables as one line."""
    before = os.dup(1)
    try:
        assert parser_child.main() == 0
    finally:
        os.dup2(before, 1)
        os.close(before)
    found = parser.parsed(json.loads(capfd.readouterr().out.splitlines()[-1]))
    assert found is not None
    assert [option.flags for option in found.options] == [("--dtype",)]
    assert (found.version, found.device, found.backends) == ("7", "cuda", ("A", "B"))
    assert found.variables == {"VLLM_LISTED"} and found.named == {"VLLM_READ"}


def test_the_child_without_a_card(
    fake_vllm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a card the parser is asked as if it were for the processor."""
    nothing = SimpleNamespace(is_unspecified=lambda: True)
    platforms = sys.modules["vllm.platforms"]
    monkeypatch.setattr(platforms, "current_platform", nothing)
    assert parser_child.parser()[1] == ""
    assert platforms.__dict__["current_platform"] == "cpu"
    assert parser_child.parser()[1] == ""
