# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The text of routers' configurations, and the step that writes them."""

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
from tests.rig.support.unit_plans import HOSTILE, PLAN
from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, StepFailed, UsageError
from tools.rig.base.process import NOT_STARTED
from tools.rig.base.state import StateRoot
from tools.rig.serve import record as records
from tools.rig.serve import router_check
from tools.rig.serve.router_check import Checked
from tools.rig.serve.routers import backend, litellm, llama_swap, nginx, yaml
from tools.rig.serve.routers.nginx import Site
from tools.rig.serve.shares import Shares
from tools.rig.steps import serve_router as step
from tools.rig.steps.serve_router import Routed, Wish

ONE = backend.of_plan(PLAN)
TWO = replace(ONE, port=8001)
OTHER = replace(TWO, name="other", served_name="other")
GIB = 1 << 30


def test_addresses() -> None:
    """A server that listens everywhere is reached here, and IPv6 stands in brackets."""
    assert replace(ONE, host="0.0.0.0").address == "127.0.0.1:8000"
    assert replace(ONE, host="::").address == "[::1]:8000"
    assert replace(ONE, name="qwen-2.5").key_variable == "RIG_KEY_QWEN_2_5"


def test_record_and_plan_agree() -> None:
    """A server that runs is seen as its plan was."""
    record = records.of_plan(replace(PLAN, api_key_file=Path("/k")), "t", 0.0)
    planned = replace(ONE, api_key_file=Path("/k"))
    assert backend.of_record(record) == replace(planned, runs=True)


@pytest.mark.parametrize(
    ("host", "its", "meet"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "", True),
        ("10.0.0.1", "0.0.0.0", True),
        ("::", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("localhost", "0.0.0.0", True),
        ("gpu-1", "0.0.0.0", True),
        ("::1", "0.0.0.0", False),
        ("10.0.0.1", "127.0.0.1", False),
        ("localhost", "10.0.0.1", False),
    ],
)
def test_a_router_at_its_own_server(host: str, its: str, meet: bool) -> None:
    """A router does not take the address of a server that it is to route to."""
    found = [replace(OTHER, host="10.9.9.9"), replace(ONE, host=its)]
    if not meet:
        backend.check_port(host, 8000, found)
    else:
        with pytest.raises(UsageError, match="qwen listens there") as told:
            backend.check_port(host, 8000, found)
        assert told.value.hint == "--port 8080"
    backend.check_port(host, 8080, found)


def test_a_router_at_ports_that_it_gives() -> None:
    """Where it gives ports to models, theirs are taken, and those of what runs now."""
    first = llama_swap.FIRST_PORT
    for port in (first, first + 1):
        with pytest.raises(UsageError, match=f"gives ports from {first} on"):
            backend.check_port("::1", port, [ONE, OTHER], first)
    for port in (first - 1, first + 2, ONE.port):
        backend.check_port(ONE.host, port, [ONE, OTHER], first)
    with pytest.raises(UsageError, match="qwen listens there"):
        backend.check_port(ONE.host, ONE.port, [replace(ONE, runs=True)], first)
    with pytest.raises(UsageError) as told:
        backend.check_port("::", 8080, [replace(ONE, port=8080), TWO])
    assert told.value.hint == "--port 8081"


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


def test_options_are_put_in_place() -> None:
    """An option's value is replaced in either spelling, or put at the end."""
    put = backend.with_option
    assert put(("a", "--p", "1", "b"), "--p", "2") == ("a", "--p", "2", "b")
    assert put(("--p=1",), "--p", "2") == ("--p=2",)
    assert put(("a", "--p"), "--p", "2") == ("a", "--p", "--p", "2")
    assert backend.has_option(("--p=1",), "--p")
    assert not backend.has_option(("--pp",), "--p")


def test_what_no_router_can_serve() -> None:
    """No server, one address twice, and a command with a secret are refused."""
    with pytest.raises(UsageError, match="no server"):
        backend.check([])
    with pytest.raises(UsageError, match="both listen"):
        backend.check([ONE, replace(OTHER, port=8000)])
    backend.check([ONE, replace(OTHER, port=8000)], running=False)
    for bad in (
        replace(ONE, argv=("x", "--api-key", "sesame")),
        replace(ONE, env={"HF_TOKEN": "sesame"}),
    ):
        with pytest.raises(UsageError, match="secret"):
            backend.check([bad])


def test_yaml() -> None:
    """Data is written as YAML whose texts are JSON, so that nothing is read as else."""
    data = {"a": {"on": True, "b": [1, {"c": "x: y", "d": []}]}, "e": {}, "f g": None}
    assert yaml.document(data, ["head", ""]).splitlines() == [
        "# head",
        "#",
        "a:",
        '  "on": true',
        "  b:",
        "    - 1",
        '    - c: "x: y"',
        "      d: []",
        "e: {}",
        '"f g": null',
    ]
    assert yaml.document({"a": "\x85\u2028é"}, []) == 'a: "\\u0085\\u2028é"\n'


def test_llama_swap() -> None:
    """Each model gets a port of llama-swap's and listens on this machine alone."""
    plan = replace(PLAN, host="0.0.0.0", model=Path("/m o"), argv=("/p", "/m o"))
    text = llama_swap.config([backend.of_plan(plan), OTHER], idle_s=60)
    unset = "env --chdir=/ --unset=PYTHONPATH"
    bound = "--port ${PORT} --host 127.0.0.1"
    assert f"    cmd: \"{unset} /p '/m o' {bound}\"" in text
    assert "--port ${PORT}" in text.split("other:")[1]
    assert "8001" not in text
    assert "ttl: 60" in text
    assert "unloadTimeout: 77" in text
    assert '- "VLLM_LOGGING_LEVEL=INFO"' in text
    assert "groups" not in text
    assert "apiKeys" not in text


def test_llama_swap_together() -> None:
    """Models that fit stay together, each with its share of memory."""
    text = llama_swap.config([ONE, OTHER], shares={"qwen": 0.4, "other": 0.5}, key=True)
    assert "--gpu-memory-utilization 0.40" in text
    assert "--gpu-memory-utilization 0.50" in text
    assert "swap: false" in text
    assert "${env.RIG_ROUTER_KEY}" in text
    own = replace(ONE, argv=(*ONE.argv, "--gpu-memory-utilization=0.3"))
    assert "0.40" not in llama_swap.config([own], shares={"qwen": 0.4})


def test_llama_swap_refuses() -> None:
    """Two servers of one name, a macro in a path, and an unknown command are told."""
    with pytest.raises(UsageError, match="two models"):
        llama_swap.config([ONE, TWO])
    with pytest.raises(UsageError, match="macro"):
        llama_swap.config([replace(ONE, argv=("/${x}/p",))])
    with pytest.raises(UsageError, match="not known"):
        llama_swap.config([replace(ONE, argv=())])


def test_llama_swap_name_for_clients() -> None:
    """A model that clients know by another name is asked by its own."""
    text = llama_swap.config([replace(ONE, name="a b")])
    assert '  "a b":' in text
    assert 'useModelName: "qwen"' in text


def test_litellm() -> None:
    """Servers are listed by name and address, and keys are read from variables."""
    text = litellm.config([replace(ONE, api_key_file=Path("/k")), OTHER], key=True)
    assert 'model: "hosted_vllm/qwen"' in text
    assert 'api_base: "http://127.0.0.1:8001/v1"' in text
    assert 'api_key: "os.environ/RIG_KEY_QWEN"' in text
    assert 'master_key: "os.environ/RIG_ROUTER_KEY"' in text
    assert "num_retries: 0" in text


def test_litellm_replicas() -> None:
    """Servers of one name share the work, and one may answer for another."""
    text = litellm.config([ONE, TWO])
    assert 'routing_strategy: "least-busy"' in text
    assert "num_retries: 1" in text
    assert "dangerously_permit_weak_or_unset_master_key: true" in text


def test_nginx() -> None:
    """What streaming needs is set, and only this machine is let in."""
    text = nginx.config([ONE, TWO], Site("qwen"))
    for line in (
        "proxy_buffering off;",
        "proxy_next_upstream error timeout;",
        'proxy_set_header Connection "";',
        "keepalive 32;",
        "deny all;",
        "listen 127.0.0.1:8080;",
        "server 127.0.0.1:8001 max_fails=2 fail_timeout=10s;",
    ):
        assert line in text
    assert "non_idempotent" not in text
    assert "401" not in text


def test_nginx_for_others() -> None:
    """Told so, it lets others in, by TLS and with a key."""
    site = Site(
        "a b",
        host="::",
        port=443,
        anybody=True,
        key_map=Path('/k "x"'),
        certificate=Path("/c"),
        certificate_key=Path("/d"),
    )
    text = nginx.config([ONE], site)
    assert "listen [::]:443 ssl;" in text
    assert 'include "/k \\"x\\"";' in text
    assert "if ($rig_a_b_known = 0) {" in text
    assert "deny all" not in text


def test_nginx_refuses() -> None:
    """Two models, half of TLS, and files that nginx cannot name are told."""
    with pytest.raises(UsageError, match="tell models apart"):
        nginx.config([ONE, OTHER], Site("x"))
    with pytest.raises(UsageError, match="TLS"):
        nginx.config([ONE], Site("x", certificate=Path("/c")))
    with pytest.raises(UsageError, match="cannot name"):
        nginx.config([ONE], Site("x", key_map=Path(f"/{HOSTILE}")))
    with pytest.raises(UsageError, match="header"):
        nginx.key_map('a"; 1')


def test_key_is_exact() -> None:
    """Upper and lower case differ, and a dot stands for itself alone."""
    assert nginx.key_map("Ab.c+d=") == '"~^Bearer Ab\\.c\\+d=$" 1;\n'


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
    """Without names all recorded servers are taken; a wrong name is told."""
    records.save(desk.root, records.of_plan(PLAN, "t", 0.0))
    assert [one.name for one in step.running(desk.root)] == ["qwen"]
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
