# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What of the words for vLLM is refused, and how paths and files in them are taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.made_model import LLAMA, llama_tensors, write
from tests.rig.support.made_parser import FORK, TWO
from tests.rig.support.plan_desk import Desk, words
from tests.rig.support.plan_desk import desk as desk
from tools.rig.base.state import StateRoot
from tools.rig.serve import folder, planning, safe
from tools.rig.serve.planning import Wish


@pytest.mark.parametrize(
    ("rest", "what"),
    [
        (("--api-key", "secret"), "everybody on this machine can read a key"),
        (("--hf-token", "secret"), "everybody on this machine can read a token"),
        (("--model", "/x"), "the model is named once"),
        (("--port", "0"), "0 is no port"),
        (("--no-such",), "no option --no-such"),
    ],
)
def test_what_is_refused(desk: Desk, rest: tuple[str, ...], what: str) -> None:
    """A key on a command line, a second model and wrong options are faults of usage."""
    assert what in desk.plan(*rest).usage[0].what


def test_others_need_a_key(desk: Desk) -> None:
    """Another address than this machine's own wants a key, or to be told otherwise."""
    key = desk.path / "key"
    assert "no API key" in desk.plan(host="0.0.0.0").usage[0].what
    assert "no API key" in desk.plan("--host", "::").usage[0].what
    assert desk.plan(host="0.0.0.0", api_key_file=key).usage == ()
    by_env = desk.plan(host="0.0.0.0", env={"VLLM_API_KEY": "s"})
    assert by_env.usage == ()
    assert any("VLLM_API_KEY" in note for note in by_env.plan.notes)
    insecure = desk.plan(host="0.0.0.0", insecure=True)
    assert insecure.usage == ()
    assert any("anybody" in note for note in insecure.plan.notes)
    old = replace(FORK, variables=frozenset({"VLLM_X"}))
    assert "takes no API key" in desk.plan(parser=old, api_key_file=key).usage[0].what


def test_what_is_this_machine() -> None:
    """Loopback is all of 127, however it is written, ::1, and the name for it."""
    hosts = (
        "127.0.0.1",
        "127.9.9.9",
        "127.1",
        "0x7f.1",
        "2130706433",
        "::1",
        "localhost",
        "0.0.0.0",
        "::",
        "gpu-1",
        "127",
        "127.1 x",
        "127.1\n",
        "",
        "127.example.org",
        "127.0.0.1.example.org",
    )
    assert [safe.is_loopback(h) for h in hosts] == [True] * 7 + [False] * 9


def test_paths_of_the_user(desk: Desk) -> None:
    """A relative path behind the dashes still means where the user stands."""
    (desk.path / "chat.jinja").touch()
    planned = desk.plan("--chat-template", "chat.jinja", "--host=::1")
    assert f"--chat-template {desk.path}/chat.jinja" in words(planned)
    assert planned.plan.rest == (
        *("--chat-template", f"{desk.path}/chat.jinja", "--host=::1"),
    )


def test_words_of_a_file_are_looked_at(desk: Desk) -> None:
    """What stands in a file counts like what is typed, which wins over it."""
    file = desk.path / "c.yaml"
    told = ("--host=0.0.0.0", "--port=9001", "-tp=1", "--dtype=bfloat16", "--zzz=1")
    planned = desk.plan("--port", "9002", from_file=told, file=file)
    assert [problem.what.partition(" (")[0] for problem in planned.usage] == [
        f"in {file}: vLLM 1.3.0 has no option --zzz",
        "others could reach 0.0.0.0, and there is no API key",
    ]
    assert (planned.plan.tensor, planned.plan.port) == (1, 9002)
    assert "no bfloat16" in planned.problems[0].what
    assert planned.plan.rest == ("--port", "9002", "--config", str(file))
    assert "--config" not in words(planned)
    ours = {"host": "127.0.0.1", "port": 9003, "tensor": 2, "from_file": told}
    planned = desk.plan(**ours, file=file)
    assert (planned.plan.host, planned.plan.port) == ("127.0.0.1", 9003)
    assert planned.plan.tensor == 2
    assert words(planned).count("--tensor-parallel-size") == 1
    assert "-tp=1" not in words(planned)
    secret = desk.plan(from_file=("--api-key=hidden",), file=file).usage[0]
    assert "--api-key is not for here" in secret.what and "hidden" not in secret.what
    trust = desk.plan(from_file=("--trust-remote-code",), file=file)
    assert any("code in the model's folder" in note for note in trust.plan.notes)


def test_a_folder_whose_name_begins_with_a_dash(tmp_path: Path) -> None:
    """Its name reaches vLLM as a value, and names log and record without the dash."""
    write(tmp_path / "-x", LLAMA, llama_tensors())
    planned = planning.plan(
        Wish(model=tmp_path / "-x", environment=Path("/e")),
        FORK,
        TWO,
        folder.read(tmp_path / "-x"),
        StateRoot(tmp_path / "root"),
        env={},
        cwd=tmp_path,
    )
    assert "--served-model-name=-x" in planned.plan.argv
    assert (planned.plan.served_name, planned.plan.name) == ("-x", "x")
    assert planned.usage == ()


@pytest.mark.parametrize("flag", ["--api-k", "--api_key", "--ap", "--hf-tok", "--hf_t"])
def test_an_abbreviated_secret_is_masked(desk: Desk, flag: str) -> None:
    """However an option is spelled, no text and no document shows its secret."""
    for words_ in ((flag, "sesame"), (f"{flag}=sesame",), (flag, "x", "sesame")):
        planned = desk.plan(*words_)
        assert "not for here" in " ".join(one.what for one in planned.usage)
        told = [
            *planned.plan.lines(),
            str(planned.plan.to_json()),
            *map(str, planned.usage),
        ]
        assert "sesame" not in "\n".join(told)


def test_abbreviations_are_written_out(desk: Desk) -> None:
    """What is started, and noted for later, has the whole names of options."""
    planned = desk.plan("--enf", "--max-num-b=4k", "--limit-mm.image", "2")
    assert planned.usage == ()
    assert planned.plan.rest == (
        *("--enforce-eager", "--max-num-batched-tokens=4k"),
        *("--limit-mm-per-prompt.image", "2"),
    )
    assert "--enforce-eager --max-num-batched-tokens=4k" in words(planned)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "a\0"])
def test_names_that_no_client_can_send(desk: Desk, name: str) -> None:
    """A line break in the name of a model is a fault of usage, wherever it stands."""
    for planned in (
        desk.plan(served_name=name),
        desk.plan(f"--served-model-name={name}"),
        desk.plan("--served-model-name", "fine", name),
        desk.plan(
            from_file=(f"--served-model-name={name}",), file=desk.path / "c.yaml"
        ),
    ):
        [problem] = planned.usage
        assert problem.what.startswith("a model cannot be called ")
        assert name not in problem.what
    assert "called ''" in desk.plan("--served-model-name=").usage[0].what
    assert desk.plan(served_name="Qwen 3 / größer").usage == ()
