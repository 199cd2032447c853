# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``serve-router``: what it writes, and what it refuses before it does."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support.made_model import LLAMA, write
from tests.rig.support.unit_plans import ONE, OTHER, PLAN
from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, StepFailed, UsageError
from tools.rig.base.process import NOT_STARTED
from tools.rig.base.state import StateRoot
from tools.rig.serve import record as records
from tools.rig.serve import router_check
from tools.rig.serve.router_check import Checked
from tools.rig.serve.routers import nginx
from tools.rig.serve.routers.nginx import Site
from tools.rig.serve.shares import Shares
from tools.rig.steps import serve_router as step
from tools.rig.steps.serve_router import Routed, Wish

GIB = 1 << 30


@pytest.mark.parametrize("kind", step.KINDS)
def test_the_step_refuses_its_own_servers_port(tmp_path: Path, kind: str) -> None:
    """Every kind of router is told before anything is written."""
    wish = Wish(kind, host=ONE.host, port=ONE.port)
    console = Console(io.StringIO(), {})
    with pytest.raises(UsageError, match="cannot listen at port 8000"):
        step.serve_router(console, StateRoot(tmp_path), [replace(ONE, runs=True)], wish)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_address_in_the_comment(tmp_path: Path, host: str) -> None:
    """How to run it stands in the file as it was asked for."""
    wish = Wish("llama-swap", host=host, port=9090)
    done = step.serve_router(
        Console(io.StringIO(), {}), StateRoot(tmp_path), [ONE], wish
    )
    listen = f"--listen {'127.0.0.1' if host[0] == '1' else chr(39) + '[::1]'}:9090"
    assert listen in Path(done.files[0]).read_text()
    assert listen in done.start[0]


class Desk:
    """Writes routers' files into a folder."""

    def __init__(self, folder: Path) -> None:
        self.root = StateRoot(folder / "root")
        self.stream = io.StringIO()
        self.key = folder / "key"
        self.key.write_text("s3same\n")
        self.checked = Checked()

    def write(self, kind: str, *backends: Any, **more: Any) -> Routed:
        """Run the step."""
        share = more.pop("share", None)
        return step.serve_router(
            Console(self.stream, {}),
            self.root,
            backends or (ONE,),
            Wish(kind, **more),
            check=lambda site: self.checked,
            share=share,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk."""
    return Desk(tmp_path)


@pytest.mark.parametrize("kind", step.KINDS)
def test_no_secret_in_the_file(desk: Desk, kind: str) -> None:
    """The key stands in no file but nginx's private one, and in no command line."""
    done = desk.write(kind, api_key_file=desk.key)
    said = "\n".join([Path(done.files[0]).read_text(), *done.start])
    assert "s3same" not in said + desk.stream.getvalue()
    assert str(desk.key) in said or Path(done.files[1]).stat().st_mode & 0o77 == 0
    assert json.loads(json.dumps(done.to_json()))["models"] == ["qwen"]
    assert "***" not in desk.stream.getvalue()


@pytest.mark.parametrize("kind", step.KINDS)
def test_others_want_a_key(desk: Desk, kind: str) -> None:
    """Another address than this machine's own needs a key, or the word for none."""
    for host in ("0.0.0.0", "127.example.org"):
        with pytest.raises(UsageError, match="everybody"):
            desk.write(kind, host=host)
    assert desk.write(kind, host="0.0.0.0", insecure=True).files
    assert desk.write(kind, host="::", api_key_file=desk.key).files


def test_wrong_wishes(desk: Desk) -> None:
    """An unknown router, TLS elsewhere, and a file without a key are told."""
    with pytest.raises(UsageError, match="no router"):
        desk.write("apache")
    with pytest.raises(UsageError, match="TLS"):
        desk.write("litellm", certificate=Path("/c"))
    desk.key.write_text("\n")
    with pytest.raises(UsageError, match="no key"):
        desk.write("nginx", api_key_file=desk.key)


def test_site_that_nginx_refuses(desk: Desk) -> None:
    """What nginx says is told, and the step fails; unread is said to be unread."""
    desk.checked = Checked(("[emerg] nonsense",))
    assert desk.write("nginx").exit_code == ExitCode.FAILED
    assert "nonsense" in desk.stream.getvalue()
    desk.checked = Checked(unknown="nginx is not here")
    done = desk.write("nginx", replace(ONE, api_key_file=Path("/k")))
    assert done.exit_code == ExitCode.OK
    assert any("the same" in note for note in done.notes)
    assert "nginx is not here" in desk.stream.getvalue()


def test_shares_decide_what_stays(desk: Desk) -> None:
    """Models that fit together stay; where they do not, one makes room for the next."""
    both = (ONE, OTHER)
    fits = Shares({"qwen": 0.4, "other": 0.5}, {}, {}, "they fit")
    done = desk.write("llama-swap", *both, memory=GIB, share=lambda b, m: fits)
    assert done.shares == fits.shares
    assert "groups" in Path(done.files[0]).read_text()
    tight = Shares({}, {}, {"qwen": 0.9}, "too much")
    for kind, word in (("llama-swap", "unloads"), ("litellm", "--kind llama-swap")):
        done = desk.write(kind, *both, memory=GIB, share=lambda b, m: tight)
        assert done.shares == {}
        assert any(word in note for note in done.notes)


def test_shares_come_from_the_models(desk: Desk, tmp_path: Path) -> None:
    """Shares are planned from the models' own headers, for one set of cards."""
    write(tmp_path / "m", LLAMA)
    two = [replace(ONE, model=tmp_path / "m"), replace(OTHER, model=tmp_path / "m")]
    got = step.plan_shares(two, 16 * GIB)
    assert got.fits
    assert sum(got.shares.values()) <= 0.92
    with pytest.raises(UsageError, match="same cards"):
        step.plan_shares([two[0], replace(two[1], cards=(3,))], 16 * GIB)


def test_servers_that_run(desk: Desk) -> None:
    """Without names all that run are taken; a wrong name is told."""
    records.save(desk.root, records.of_plan(PLAN, "t", 0.0))
    alive = step.running(desk.root, alive=lambda one: one.name == "qwen")
    assert [one.name for one in alive] == ["qwen"]
    assert step.running(desk.root) == []
    assert step.running(desk.root, ["qwen"])[0].argv == PLAN.argv
    with pytest.raises(UsageError, match="no server is called x"):
        step.running(desk.root, ["x"])


def test_keys_cannot_be_written(desk: Desk) -> None:
    """A disk that does not take the file of keys is told."""
    (desk.root.path / "routers/rig-qwen.keys").mkdir(parents=True)
    with pytest.raises(StepFailed):
        desk.write("nginx", api_key_file=desk.key)


def test_nginx_is_asked(fp: FakeProcess, tmp_path: Path) -> None:
    """Nginx reads a whole configuration with nothing but the site in it."""
    site = tmp_path / "site.conf"
    asked = ["nginx", "-t", "-q", "-p", fp.any(min=3, max=3)]
    fp.register(asked)
    assert router_check.nginx_site(site) == Checked()
    fp.register(asked, returncode=1, stderr="x [warn] a\nx [emerg] b\n")
    assert router_check.nginx_site(site) == Checked(("x [emerg] b",))
    fp.register(asked, returncode=1)
    assert router_check.nginx_site(site).problems == ("nginx -t failed",)
    fp.register(asked, returncode=NOT_STARTED)
    assert router_check.nginx_site(site).unknown
    assert os.fspath(site) in nginx.around(site, tmp_path)


@pytest.mark.parametrize("kind", step.KINDS)
def test_names_that_look_alike(desk: Desk, kind: str) -> None:
    """Names that no file or setting can hold as they are do not meet there."""
    names = ("é", "è", "a b", "a-b", "a_b")
    # in which LiteLLM cannot answer
    names = names if kind == "litellm" else ("模型", "千问", *names)
    done = [desk.write(kind, replace(ONE, name=name)) for name in names]
    assert len({one.files[0] for one in done}) == len(names)
    sites = [nginx.config([ONE], Site(name)).splitlines()[1] for name in names]
    assert len({*sites}) == len(names)
    assert sites[-1] == "upstream rig_a_b {"
