# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Routers' configurations in the real routers: streamed tokens through nginx, LiteLLM.

Two small servers stand for vLLM and send a token when the test says so; one long test
has two real ones.
"""

from __future__ import annotations

import http.client
import io
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.rig.support import proxies, tiny_model, vllm_cpu
from tests.rig.support.llama_swap_rules import RULES
from tests.rig.support.stand_in import WORDS, StandIn, serving
from tests.rig.support.streamed import Stream, status_of
from tests.rig.support.unit_plans import PLAN
from tests.rig.support.vllm_cpu import free_port
from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot
from tools.rig.serve import metrics, router_check
from tools.rig.serve import record as records
from tools.rig.serve.routers import backend, litellm
from tools.rig.serve.routers.backend import Backend
from tools.rig.steps import serve_router as step
from tools.rig.steps.serve import serve
from tools.rig.steps.serve_router import Routed, Wish
from tools.rig.steps.serve_stop import serve_stop

pytestmark = pytest.mark.real

KEY = "s3sam3-for-all"
KINDS = ("llama", "qwen2")


def of(server: StandIn) -> Backend:
    """Return a stand-in as a router sees it."""
    return Backend(server.model, server.model, "127.0.0.1", server.port, Path("/m"))


@dataclass
class Front:
    """A folder with a router before servers."""

    folder: Path
    port: int = field(default_factory=free_port)

    def write(self, kind: str, backends: list[Backend], **more: Any) -> Routed:
        """Write the router's configuration as the step does."""
        wish = Wish(kind, port=self.port, **more)
        root = StateRoot(self.folder / "state")
        return step.serve_router(Console(io.StringIO(), {}), root, backends, wish)

    @contextmanager
    def nginx(self, *servers: StandIn, **more: object) -> Iterator[None]:
        """Run nginx before servers."""
        proxies.nginx_program()
        done = self.write("nginx", [of(one) for one in servers], **more)
        assert (done.problems, done.unknown) == ((), "")
        site = Path(done.files[0])
        with (
            serving(*servers),
            proxies.nginx_running(site, self.port, self.folder),
        ):
            yield

    def key_file(self) -> Path:
        """Return a file with the key."""
        file = self.folder / "key"
        file.write_text(f"{KEY}\n")
        file.chmod(0o600)
        return file


@pytest.fixture
def front(tmp_path: Path) -> Front:
    """Return a router's place."""
    return Front(tmp_path)


def test_tokens_come_one_by_one(front: Front) -> None:
    """Through nginx a token arrives before the server has made the next one."""
    server = StandIn("m", held=True)
    with front.nginx(server):
        server.go_on()
        stream = Stream(front.port, "m")
        assert stream.token() == WORDS[0]
        server.go_on()
        assert stream.token() == WORDS[1]
        server.go_on()
        assert stream.rest() == [WORDS[2]]


def test_replicas_share_the_work(front: Front) -> None:
    """The next request goes to the replica that is idle."""
    servers = [StandIn("m", held=True), StandIn("m", held=True)]
    with front.nginx(*servers):
        for one in servers:
            one.go_on()
        streams = [Stream(front.port, "m") for _ in servers]
        assert [s.token() for s in streams] == [WORDS[0]] * 2
        assert [len(one.asked) for one in servers] == [1, 1]
        for one in servers:
            one.go_on(2)
        assert [s.rest() for s in streams] == [[*WORDS[1:]]] * 2


def test_replica_that_is_down_is_passed_over(front: Front) -> None:
    """With one of two replicas gone no request is lost."""
    here, gone = StandIn("m"), StandIn("m")
    gone.server.server_close()
    backends = [of(gone), of(here)]
    proxies.nginx_program()
    site = Path(front.write("nginx", backends).files[0])
    with serving(here), proxies.nginx_running(site, front.port, front.folder):
        for _ in range(4):
            assert Stream(front.port, "m").rest() == [*WORDS]
    assert len(here.asked) == 4


def test_what_began_is_not_asked_again(front: Front) -> None:
    """An answer that breaks off is not computed a second time by the other replica."""
    servers = [StandIn("m", breaks=True), StandIn("m", breaks=True)]
    with front.nginx(*servers):
        stream = Stream(front.port, "m")
        assert stream.token() == WORDS[0]
        try:
            left = stream.rest()
        except http.client.HTTPException:
            left = []
        assert left == []
    assert sum(len(one.asked) for one in servers) == 1


def test_key_of_the_site(front: Front) -> None:
    """Without the key nobody comes through, and it stands in a private file alone."""
    server = StandIn("m")
    with front.nginx(server, api_key_file=front.key_file()):
        assert Stream(front.port, "m").refused() == 401
        for wrong in ("wrong", KEY.swapcase(), KEY + "x", KEY[:-1]):
            assert Stream(front.port, "m", key=wrong).refused() == 401
        assert server.asked == []
        assert Stream(front.port, "m", key=KEY).rest() == [*WORDS]
        assert status_of(front.port, "/health") == 200
    site, keys = sorted((front.folder / "state/routers").glob("rig-*"))
    assert KEY not in site.read_text()
    assert keys.stat().st_mode & 0o777 == 0o600


def test_only_the_api_is_reached(front: Front) -> None:
    """Metrics and documents of one replica are not shown as if they were all."""
    with front.nginx(StandIn("m")):
        assert status_of(front.port, "/metrics") == 404
        assert status_of(front.port, "/v1/models") == 200


def test_tls(front: Front) -> None:
    """With a certificate tokens come by TLS."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate, key = front.folder / "c.pem", front.folder / "k.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    out = ["-keyout", os.fspath(key), "-out", os.fspath(certificate)]
    argv = ["openssl", *words.split(), *names, *out]
    subprocess.run(argv, check=True, capture_output=True)
    trust = ssl.create_default_context(cafile=os.fspath(certificate))
    with front.nginx(StandIn("m"), certificate=certificate, certificate_key=key):
        assert Stream(front.port, "m", tls=trust).rest() == [*WORDS]


def test_faults_of_a_site_are_told(front: Front) -> None:
    """What nginx does not understand is a problem, in nginx's own words."""
    proxies.nginx_program()
    done = front.write("nginx", [backend.of_plan(PLAN)])
    site = Path(done.files[0])
    site.write_text(site.read_text().replace("least_conn", "least_con"))
    found = router_check.nginx_site(site)
    assert any("least_con" in problem for problem in found.problems)


def test_litellm_routes_by_model(front: Front) -> None:
    """The model of a request finds its server, token by token, and a key is wanted."""
    alpha, beta = StandIn("alpha"), StandIn("beta", held=True)
    wanted = {"api_key_file": front.key_file()}
    done = front.write("litellm", [of(alpha), of(beta)], **wanted)
    argv = litellm.command(done.files[0], "127.0.0.1", front.port)
    log = front.folder / "litellm.log"
    env = {litellm.KEY: KEY}
    with (
        serving(alpha, beta),
        proxies.litellm_running(argv, front.port, env, log),
    ):
        assert Stream(front.port, "alpha", key="wrong").refused() in (400, 401)
        assert alpha.asked == []
        assert Stream(front.port, "alpha", key=KEY).rest() == [*WORDS]
        beta.go_on()
        stream = Stream(front.port, "beta", key=KEY)
        assert stream.token() == WORDS[0]
        beta.go_on(2)
        assert stream.rest() == [*WORDS[1:]]
    assert [len(one.asked) for one in (alpha, beta)] == [1, 1]
    assert KEY not in Path(done.files[0]).read_text()


@pytest.mark.parametrize("names", [("a-b", "a_b"), ("é", "è")])
def test_litellm_tells_each_server_its_own_key(
    front: Front, names: tuple[str, str]
) -> None:
    """Servers whose names look alike in a variable are asked with a key each."""
    servers = [StandIn(name) for name in names]
    files = [front.folder / f"key{n}" for n in (1, 2)]
    for file in files:
        file.write_text(f"sesame-of-{file.name}\n")
        file.chmod(0o600)
    known = [
        replace(of(one), api_key_file=file)
        for one, file in zip(servers, files, strict=True)
    ]
    done = front.write("litellm", known)
    argv = litellm.command(done.files[0], "127.0.0.1", front.port)
    env = {k: file.read_text().strip() for k, file in litellm.keys(known).items()}
    log = front.folder / "litellm.log"
    with serving(*servers), proxies.litellm_running(argv, front.port, env, log):
        for one in servers:
            assert Stream(front.port, one.model).rest() == [*WORDS]
    assert [one.keys for one in servers] == [
        ["Bearer sesame-of-key1"],
        ["Bearer sesame-of-key2"],
    ]


def test_llama_swap_by_its_rules(front: Front) -> None:
    """llama-swap's file is as its schema wants it, read by a YAML library."""
    plans = [backend.of_plan(PLAN), backend.of_plan(PLAN, "other: name")]
    done = front.write("llama-swap", plans, api_key_file=front.key_file(), idle_s=600)
    data = proxies.read_yaml(Path(done.files[0]))
    Draft202012Validator(RULES).validate(data)
    assert set(data["models"]) == {"qwen", "other: name"}


@pytest.mark.long
def test_two_real_servers(front: Front) -> None:
    """Tokens of two real servers come through nginx, and by model through LiteLLM."""
    python = vllm_cpu.environment() / "bin" / "python"
    made = {kind: tiny_model.write(front.folder / kind, kind) for kind in KINDS}
    root = StateRoot(front.folder / "root")
    console = Console(io.StringIO(), {})
    with ExitStack() as stack:
        backends = []
        for kind, model in made.items():
            plan = vllm_cpu.plan(root.path, model, kind, python=python)
            serve(console, plan, root, timeout=600)
            stack.callback(serve_stop, console, root, kind)
            backends.append(backend.of_plan(plan, kind))
        site = Path(front.write("nginx", backends).files[0])
        with proxies.nginx_running(site, front.port, front.folder):
            streams = [Stream(front.port, vllm_cpu.MODEL) for _ in range(4)]
            assert all(stream.rest() for stream in streams)
        assert all(_answered(root, kind) for kind in KINDS)
        done = front.write("litellm", backends)
        argv = litellm.command(done.files[0], "127.0.0.1", front.port)
        log = front.folder / "litellm.log"
        with proxies.litellm_running(argv, front.port, {}, log):
            before = [_answered(root, kind) for kind in KINDS]
            stream = Stream(front.port, KINDS[1])
            assert stream.rest(), (stream.status, log.read_text()[-2000:])
            after = [_answered(root, kind) for kind in KINDS]
        assert after[0] == before[0]
        assert after[1] > before[1]


def _answered(root: StateRoot, name: str) -> float:
    """Return how many tokens a server has made beside the first, which we asked for."""
    record = records.load(root, name)
    assert record is not None
    found = metrics.read(record)
    assert found is not None
    assert found.generated is not None
    return found.generated - 1
