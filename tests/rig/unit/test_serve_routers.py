# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The text of routers' configurations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.unit_plans import HOSTILE, ONE, OTHER, PLAN, TWO
from tools.rig.base.errors import UsageError
from tools.rig.serve.routers import backend, litellm, llama_swap, nginx, yaml
from tools.rig.serve.routers.nginx import Site


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
    assert "if ($rig_a_b_c8687a08_known = 0) {" in text
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
