# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Keys of servers behind a router: each gets its own, and no file shows one."""

from __future__ import annotations

import io
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.unit_plans import PLAN
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed, UsageError
from tools.rig.base.state import StateRoot
from tools.rig.serve.router_check import Checked
from tools.rig.serve.routers import backend, litellm
from tools.rig.steps import routing
from tools.rig.steps import serve_router as step
from tools.rig.steps.routing import Wish

ONE = replace(backend.of_plan(PLAN), api_key_file=Path("/keys/a"))


@pytest.mark.parametrize("names", [("é", "è"), ("qwen", "qwen"), ("a-b", "a_b")])
def test_servers_with_keys_of_their_own(tmp_path: Path, names: tuple[str, str]) -> None:
    """Names that make one variable, and replicas, do not get each other's keys."""
    first, second = names
    both = [
        replace(ONE, name=first),
        replace(ONE, name=second, port=8001, api_key_file=Path("/keys/b")),
    ]
    file = tmp_path / "x.yaml"
    done = routing.write_litellm(both, Wish("litellm"), file, None)
    one, two = litellm.keys(both)
    assert one != two
    text = file.read_text()
    for name, key in ((one, "/keys/a"), (two, "/keys/b")):
        assert f'api_key: "os.environ/{name}"' in text
        assert f'{name}="$(cat {key})"' in done.start[0]


def test_servers_with_one_key() -> None:
    """A key that all of them have is read once."""
    both = [ONE, replace(ONE, port=8001)]
    assert litellm.keys(both) == {ONE.key_variable: Path("/keys/a")}
    assert litellm.keys([replace(ONE, api_key_file=None)]) == {}


def test_a_key_of_nginx_is_whole_or_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that gets full leaves the file of keys as nginx reads it now."""
    key, site = tmp_path / "key", tmp_path / "site.conf"
    wish = Wish("nginx", api_key_file=key)

    def write(word: str) -> None:
        key.write_text(word)
        routing.write_nginx([ONE], wish, site, lambda file: Checked())

    write("sesame")
    known = tmp_path / "site.keys"
    known.chmod(0o644)
    write("sesame")
    assert stat.S_IMODE(known.stat().st_mode) == 0o600
    before = known.read_text()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StepFailed, match=r"cannot write .*site\.keys: No space left"):
        write("other")
    assert known.read_text() == before and "sesame" in before


def test_no_key_is_written_for_a_site_that_cannot_be(tmp_path: Path) -> None:
    """Nothing of a key stays where the site itself is refused."""
    key = tmp_path / "key"
    key.write_text("sesame")
    other = replace(ONE, served_name="other")
    with pytest.raises(UsageError, match="tell models apart"):
        routing.write_nginx(
            [ONE, other],
            Wish("nginx", api_key_file=key),
            tmp_path / "site.conf",
            lambda file: Checked(),
        )
    assert [one.name for one in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("kind", step.KINDS)
def test_a_key_that_others_can_read(tmp_path: Path, kind: str) -> None:
    """A file of the clients' key that is open to all is told, with what closes it."""
    key = tmp_path / "key"
    key.write_text("sesame")
    for mode, told in ((0o644, True), (0o600, False)):
        key.chmod(mode)
        done = step.serve_router(
            Console(io.StringIO(), {}),
            StateRoot(tmp_path / "root"),
            [backend.of_plan(PLAN)],
            Wish(kind, api_key_file=key),
            check=lambda site: Checked(),
        )
        said = f"others can read the key in {key}: chmod 600 {key}"
        assert (said in done.notes) is told
    key.write_text("")
    with pytest.raises(UsageError, match="no key") as caught:
        step.serve_router(
            Console(io.StringIO(), {}),
            StateRoot(tmp_path / "root"),
            [backend.of_plan(PLAN)],
            Wish(kind, api_key_file=key),
        )
    assert f"openssl rand -hex 32 > {key}" in caught.value.hint


@pytest.mark.parametrize("how", [{"name": "模型"}, {"served_name": "模型"}])
def test_names_that_litellm_cannot_say(tmp_path: Path, how: dict[str, str]) -> None:
    """A name that no header holds is refused: each request would fail with 500."""
    file = tmp_path / "x.yaml"
    with pytest.raises(UsageError, match="cannot serve a model called 模型"):
        routing.write_litellm([replace(ONE, **how)], Wish("litellm"), file, None)
    assert not file.exists()
