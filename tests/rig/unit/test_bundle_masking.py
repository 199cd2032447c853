# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What leaves the machine is masked, stays readable, and is masked in linear time."""

from __future__ import annotations

import json
import string
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rig.support.planted import draw, remains, twisted
from tools.rig.base import addresses, forms, redact
from tools.rig.base.anonymous import Known, Masker
from tools.rig.base.literals import Literal, Literals

KNOWN = Known(
    secrets=frozenset(
        {"q8ZkLm2Px0vv", "s3cret with/odd \"&' letters", "line1aa\nline2bb"}
    ),
    users=("alice", "test", "me"),
    hosts=("gpubox", "vm"),
    domains=("corp.example.com",),
    homes=("/home/alice", "/root"),
    ids=("0123456789abcdef0123456789abcdef",),
)

FRAGMENTS = (
    *("HF_TOKEN=", "Authorization: Bearer ", "password: ", "://", "@", "=", ":", " "),
    *("\n", '"', "'", "\\", "%41", "\\u0041", "\\n", "&amp;", "\x1b[31m", "***", "<"),
    *("user-1>", "<host-1>", "alice", "gpubox", "/home/", "/home/alice", "10.1.2.3"),
    *("2001:db8::7", "aa:bb:cc:dd:ee:ff", "a@b.org", "q8ZkLm2Px0vv", "token ", "key"),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "serial: ", "12345"),
    *("GPU-12345678-1234-1234-1234-123456789abc", "corp.example.com", "version", "-u "),
    *("<password>", "</password>", "name: ", "value: ", "login ", " password ", "-p"),
    *("aB3dE5fG7hJ9kL1m", "basic ", "Ym9iOnB3", "eyJ", "hf_", "--api-key ", ".local"),
)
MESSY = st.lists(
    st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=8)), max_size=24
).map("".join)
INSIDE = string.ascii_letters + string.digits + string.punctuation + " "
SECRET = st.text(INSIDE, min_size=8, max_size=40).map(lambda s: f"aB3{s}x9Z")
LAX = settings(
    deadline=None,
    max_examples=300,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)

# what is written, and what is left of it
MASKED = [
    ("password = correct horse battery", "password = ***"),
    ("a: line 7: password = *** horse", "a: line 7: password = ***"),
    ("  line 7: password: *** horse", "  line 7: password: ***"),
    ("     12  password: correct horse", "     12  password: ***"),
    ("secret=abc'123x", "secret=***"),
    ("  password: correct horse", "  password: ***"),
    ("HF_TOKEN=abc vllm serve m", "HF_TOKEN=*** vllm serve m"),
    ("setenv MY_SECRET abc", "setenv MY_SECRET ***"),
    ("- name: HF_TOKEN\n  value: abc1", "- name: HF_TOKEN\n  value: ***"),
    (
        '{"name": "DB_PASSWORD", "value": "x1"}',
        '{"name": "DB_PASSWORD", "value": "***"}',
    ),
    ("<password>abc</password>", "<password>***</password>"),
    ("machine h login l password pw1", "machine h login l password ***"),
    ("curl -u bob:pw9x http://x.org", "curl -u bob:*** http://x.org"),
    ("mysql -h db -u bob -psesame x", "mysql -h db -u bob -p*** x"),
    ("sshpass -p sesame ssh x", "sshpass -p *** ssh x"),
    ("https://bob:hun/ter2@host.example/x", "https://***@host.example/x"),
    ("basic Ym9iOnB3", "basic ***"),
    ("docker login -u bob -p sesame r", "docker login -u bob -p *** r"),
    ("openssl -passin pass:sesame", "openssl -passin pass:***"),
    ("redis-cli -h x -a sesame", "redis-cli -h x -a ***"),
    ("echo sesame | sudo -S ls", "echo *** | sudo -S ls"),
    ("Password for user bob: ses4me", "Password for user bob: ***"),
    ("the password is ses4me", "the password is ***"),
    ("ENV HF_TOKEN abc123x", "ENV HF_TOKEN ***"),
    ("('HF_TOKEN', 'abc')", "('HF_TOKEN', '***')"),
    ("?x=password%3Dabc%26b", "?x=password%3D***%26b"),
    ("HF_TOKEN: |\n  abc", "HF_TOKEN: ***\n  ***"),
    ("HF_TOKEN=\nzX81kLmQp02Jk", "HF_TOKEN=\n***"),
    ("https://hooks.slack.com/services/T0AB/B0CD/abc123xabc", "***"),
    ("bot123456789:AAabcdefghijklmnopqrstuvwxyz0123", "***"),
    ("args: {'api_key': ['abc', 'd']}", "args: {'api_key': ***}"),
    ("using token zX81kLmQp02Jk now", "using token *** now"),
    ("glrt-" + "aB3" * 7, "***"),
    ("\x1b[31mhf_" + "aB3" * 8 + "\x1b[0m", "***"),
    ("alice@gpubox:/home/alice/x", "<user-1>@<host-1>:<home-1>/x"),
    ("ALICE and %2Fhome%2Falice", "<user-1> and <home-1>"),
    ("gpubox.corp.example.com", "<host-1>.<domain-1>"),
    ("test@vm: user=test", "<user-1>@<host-1>: user=<user-1>"),
    ("connect 10.3.5.147:8000", "connect <ip-1>:8000"),
    ("from 192.168.1.20 and 192.168.1.20", "from <ip-1> and <ip-1>"),
    ("10.0.0.0/8", "<ip-1>/8"),
    ("http://10.1.2.0/x", "http://<ip-1>/x"),
    ("fe80::1a2b:3cff:fe4d:5e6f%eth0", "<ip-1>%eth0"),
    ("2001:db8::7", "<ip-1>"),
    ("aa:bb:cc:dd:ee:ff", "<mac-1>"),
    ("a.b@x.org", "<mail-1>"),
    ("GPU-12345678-1234-1234-1234-123456789ABC", "<gpu-1>"),
    ("Serial Number : 0324517012345", "Serial Number : <serial-1>"),
    ("boot 12345678-1234-1234-1234-123456789abc", "boot <uuid-1>"),
    ("machine 0123456789abcdef0123456789abcdef", "machine <id-1>"),
    ("http://nas:8080/x", "http://<host-1>:8080/x"),
    ("nexus.dmz.corp refused", "<host-1> refused"),
]

READABLE = [
    "HF_TOKEN=\nHOME=there",
    "echo done | tee log",
    "first pass: 3",
    "copying passes/inductor_pass.py -> build/lib.linux-x86_64-cpython-312/passes",
    "dict_keys(['AfmoeForCausalLM', 'LlamaForCausalLM'])",
    "Unimplemented keys: ['x'], 'type': 'BadRequestError'",
    "the token is invalid",
    "CUDA 12.4.131.0, driver 580.95.05",
    "12.4.131.0",
    "nvidia-cublas-cu12       12.4.5.8",
    "nvidia-curand-cu12==10.3.5.147",
    '"version": "10.3.5.147"',
    "libcublas.so.12.4.5.8",
    "http://localhost:8000/v1 at 127.0.0.1:8000, 0.0.0.0:80 and ::1, 255.255.255.0",
    "std::abs dead::beef c10::cuda fe::x",
    "00000000:3B:00.0 at 12:34:56",
    "memcpy@@GLIBC_2.14 cudaLaunch@libcudart.so.12",
    "user@1000.service",
    "git@github.com:foo/bar.git",
    "https://index.example.org/simple https://download.pytorch.org/whl/cu128",
    "commit 3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a",
    "sccache hash key 3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c",
    "docker run -u 1000:1000 x",
    "test session starts; virtual machine; a test of vm",
    "/usr/roots/x alicea balice",
    "max_num_batched_tokens 8192 max-model-len-8192",
    "token file /home/x/.cache/huggingface/token",
    "error: no kernel image is available for execution on the device",
    "Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus",
    "basic information",
]


def masker() -> Masker:
    """Return a masker that knows a machine."""
    return Masker(KNOWN)


@pytest.mark.parametrize(("text", "left"), MASKED)
def test_masks(text: str, left: str) -> None:
    """The secret or name is gone, and a second look changes nothing."""
    mask = masker()
    assert mask.text(text) == left
    assert mask.text(left) == left


@pytest.mark.parametrize("text", READABLE)
def test_leaves_readable(text: str) -> None:
    """A report without versions and messages is worth nothing."""
    assert masker().text(text) == text


class TestProperties:
    """What holds for any text."""

    @LAX
    @given(MESSY)
    def test_idempotent(self, text: str) -> None:
        """Masked text is left alone, and nothing that is known is in it."""
        mask = masker()
        once = mask.text(text)
        assert mask.text(once) == once
        assert masker().text(once) == once
        assert not mask.leaks(once)

    @LAX
    @given(SECRET, MESSY, MESSY)
    def test_known_secret_never_stays(
        self, secret: str, before: str, after: str
    ) -> None:
        """A secret that is known is found in any text and in any form."""
        mask = Masker(Known(secrets=frozenset({secret})))
        for line in twisted(secret):
            out = mask.text(f"{before}{line}{after}")
            joined = "".join(part.strip() for part in out.splitlines())
            assert not [f for f in remains(secret) if f in out or f in joined]

    @LAX
    @given(MESSY)
    def test_learning_and_data_never_fail(self, text: str) -> None:
        """Whatever stands in a log, something comes out, and JSON stays JSON."""
        mask = masker()
        mask.learn(text)
        data = {"a": [text, {text: 1}], "token": text, "n": None, "f": 1.5}
        out = json.loads(json.dumps(mask.data(data)))
        assert set(out) == {"a", "token", "n", "f"}
        assert not text or out["token"] == "***"


@pytest.mark.parametrize(
    "piece",
    [
        *("token-", "A1b2C3d4", "10.1.2.", "2001:", "a@", "a.", "key ", "password="),
        *("login a ", "<a ", "x\n", "\\", '"', "http://", "name: ", "\\u0041", "%41"),
        *("q8ZkLm2Px0vv", "-----BEGIN PRIVATE KEY-----\n", "/home/", " ", "Serial: "),
        *("&#65;", "mysql -p ", "basic YWJj ", "eyJaaaaaaaa.", "aa:", "token x ", "="),
        *("tokenizer=", "my_key: ", "A_TOKEN ", "echo a|", "('a','", "a%3D", "a:\n"),
        *("ab-12.", "\x1b[", "\x1b]", "user=", "(", "-u a:", "value:", "<host-1>"),
    ],
)
def test_linear(piece: str) -> None:
    """Text that is made to cost time costs twice as much when it is twice as long."""
    mask = masker()

    def cost(size: int) -> float:
        text = piece * (size // len(piece))
        start = time.process_time()
        mask.text(text)
        return time.process_time() - start

    cost(2_000)
    small, large = cost(50_000), cost(200_000)
    # four times the text: 4 when linear, 16 when quadratic
    assert large < 8 * small + 0.3
    assert large < 4


class TestMasker:
    """What is known, learned and counted."""

    def test_learns(self) -> None:
        """What one text calls a secret or a name is masked in all of them."""
        mask = Masker()
        value = draw()
        mask.learn(f"export SOME_TOKEN={value}\n/home/ganon/x")
        mask.learn("Nov 30 12:28:04 castle9 kernel: NVRM: x\nSerial Number: 0324517")
        assert mask.text(f"{value} of ganon") == "*** of <user-1>"
        mask.learn("zelda@castle9.hyrule.org: hi, other.lake.org")
        assert mask.text("castle9 0324517") == "<host-1> <serial-1>"
        assert mask.text("x.hyrule.org lake.org") == "x.<domain-1> lake.org"

    def test_learns_no_words(self) -> None:
        """Prose behind a telling word is no secret elsewhere."""
        mask = Masker()
        mask.learn("token: unexpected\npassword=required\n{'user': 'hello'}")
        assert mask.text("unexpected required hello") == "unexpected required hello"

    def test_data(self) -> None:
        """Fields are masked by their names, command lines word by word."""
        mask = masker()
        data = {
            "user": "test",
            "host": "vm",
            "api_key": "x",
            "argv": ["serve", "--api-key", "a", "b"],
            "pair": {"name": "HF_TOKEN", "value": "x"},
            "port": 8000,
            "nothing": None,
            "listen": {"host": "0.0.0.0"},
            "of": {"user": "root"},
        }
        assert mask.data(data) == {
            "user": "<user-1>",
            "host": "<host-1>",
            "api_key": "***",
            "argv": ["serve", "--api-key", "***", "***"],
            "pair": {"name": "HF_TOKEN", "value": "***"},
            "port": 8000,
            "nothing": None,
            "listen": {"host": "0.0.0.0"},
            "of": {"user": "root"},
        }

    def test_counts(self) -> None:
        """Each replacement counts, and each value once."""
        mask = masker()
        mask.text("alice alice gpubox HF_TOKEN=x 10.1.2.3 10.1.2.3 10.1.2.4")
        assert mask.replaced == {"user": 2, "host": 1, "secret": 1, "ip": 3}
        assert mask.values == {"host": 1, "ip": 2, "user": 1}

    @pytest.mark.parametrize(
        "secret", ["none", "test", "EMPTY", "1234", "abc", "token"]
    )
    def test_words_are_no_secrets(self, secret: str) -> None:
        """A token that is a common word would black out every log."""
        mask = Masker(Known(secrets=frozenset({secret})))
        assert mask.text(f"a {secret} here") == f"a {secret} here"

    def test_short_secret_stands_alone(self) -> None:
        """A short one is masked as a word, not inside of words."""
        mask = Masker(Known(secrets=frozenset({"ab1cd"})))
        assert mask.text("ab1cd xab1cdx (ab1cd)") == "*** xab1cdx (***)"

    def test_many_lines(self) -> None:
        """Each line of a secret of several lines is one."""
        assert masker().text("see line2bb") == "see ***"


class TestLiterals:
    """Places of known texts."""

    def test_overlapping(self) -> None:
        """Two that overlap are one place."""
        found = Literals([Literal("abcdef", "1"), Literal("defghi", "2")])
        assert [(p.start, p.end) for p in found.places("xabcdefghix")] == [(1, 10)]

    def test_nothing_known(self) -> None:
        """Without literals nothing is found."""
        assert Literals([]).places("anything \\u0041\n") == []


class TestForms:
    """What looks random."""

    @pytest.mark.parametrize(
        "value", ["zX81kLmQp02Jk", "AbCdEfGhIjKlMnOp", "9f8e7d6c5b4a39281706f5"]
    )
    def test_random(self, value: str) -> None:
        """Nobody writes such words."""
        assert forms.is_random(value)

    @pytest.mark.parametrize(
        "value",
        ["short1A", "max-model-len-8192", "/etc/ssl/key1A2b3C4d", "libfoo.so.1.2.3"]
        + ["abcdefghijklmnop", "1234567890123", "<host-1>/aaaaa1B"],
    )
    def test_not_random(self, value: str) -> None:
        """Names, paths and numbers are written by people."""
        assert not forms.is_random(value)


@pytest.mark.parametrize(
    ("ip", "after", "before", "expected"),
    [
        ("10.0.0.7", "", "from ", True),
        ("12.4.131.0", "", "", False),
        ("12.4.131.9", "", "CUDA Version: ", False),
        ("12.4.131.9", ":80", "CUDA Version: ", True),
        ("300.1.1.1", "", "from ", False),
        ("10.01.1.1", "", "from ", False),
        ("127.0.0.1", ":80", "from ", False),
        ("10.0.0.0", "", "tcp://", True),
    ],
)
def test_address_or_version(ip: str, after: str, before: str, expected: bool) -> None:
    """What stands around four numbers decides what they are."""
    assert addresses.is_address(ip, after, f"{before}{ip}", len(before)) is expected


def test_cut_key_loses_its_body_alone() -> None:
    """Of a private key whose beginning was cut off, the lines before it stay."""
    body = "MIIEpAIBAAKCAQEA" * 4
    end = "-----END RSA PRIVATE KEY-----\nend\n"
    log = f"step one\nstep two\n{body}\n{body}\nab12\n{end}"
    masked = forms.text(log)
    assert masked.startswith("step one\nstep two\n***-----END RSA")
    assert "MIIE" not in masked and masked.endswith("\nend\n")
    kind = "RSA PRIVATE KEY-----\n"
    whole = f"step one\n-----BEGIN {kind}{body}\n-----END {kind}"
    assert forms.text(redact.text(whole)).startswith("step one\n-----BEGIN")


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("random zQ9vLw2TnR5xKp9DmB7cYf3H loose", "random *** loose"),
        ("密码：PlantZhPw123", "密码：***"),
        ("class FlashAttentionV100BackendImplementation", None),
        ("commit 9606bb0f62750a2bc2eda5e69606bb0f62750a2b", None),
    ],
)
def test_loose_secrets(line: str, masked: str | None) -> None:
    """What looks drawn by a machine goes; names and commits stay."""
    assert forms.text(line) == (masked or line)
