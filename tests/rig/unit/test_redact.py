# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Secrets are masked, and what only sounds like one stays readable."""

from __future__ import annotations

import time

import pytest

from tools.rig.base import redact

SECRET = "s3cr3tValue"

# a text with the secret in it, and what is left of it
MASKED = [
    (f"HF_TOKEN={SECRET}", "HF_TOKEN=***"),
    (f"export WANDB_API_KEY='{SECRET} b' x", "export WANDB_API_KEY='***' x"),
    (f"-DHF_TOKEN={SECRET}", "-DHF_TOKEN=***"),
    (f"TOKEN={SECRET},a;b", "TOKEN=***"),
    (f"MYSQL_PWD={SECRET}", "MYSQL_PWD=***"),
    (f"DB_PASS={SECRET}", "DB_PASS=***"),
    (f"AWS_SECRET_ACCESS_KEY={SECRET}/+", "AWS_SECRET_ACCESS_KEY=***"),
    (f"AZURE_STORAGE_KEY={SECRET}", "AZURE_STORAGE_KEY=***"),
    (f"clientSecret={SECRET}", "clientSecret=***"),
    (f"vllm serve --api-key {SECRET} -q", "vllm serve --api-key *** -q"),
    (f"vllm serve --api-key={SECRET} -q", "vllm serve --api-key=*** -q"),
    (f"--hf-token={SECRET} --port 1", "--hf-token=*** --port 1"),
    (f'{{"api_key": "{SECRET}", "b": 1}}', '{"api_key": "***", "b": 1}'),
    (f"{{'HF_TOKEN': '{SECRET} b'}}", "{'HF_TOKEN': '***'}"),
    (f"password = {SECRET}", "password = ***"),
    (f"token: {SECRET}", "token: ***"),
    (f"fo: HF_TOKEN={SECRET}", "fo: HF_TOKEN=***"),
    (f"tokenizer=HF_TOKEN={SECRET}", "tokenizer=HF_TOKEN=***"),
    (f"x-api-key: {SECRET}", "x-api-key: ***"),
    (f"Authorization: Bearer {SECRET}", "Authorization: Bearer ***"),
    (f"-H 'Authorization: Basic {SECRET}=' u", "-H 'Authorization: Basic ***' u"),
    (f"Proxy-Authorization: {SECRET}", "Proxy-Authorization: ***"),
    (f"Set-Cookie: a={SECRET}; b={SECRET}", "Set-Cookie: ***"),
    (f"sent bearer {SECRET}", "sent bearer ***"),
    (f"git+https://me:{SECRET}@host/x", "git+https://***@host/x"),
    (f"https://me:p@{SECRET}@host/", "https://***@host/"),
    (f"https://{SECRET}@host/x.git", "https://***@host/x.git"),
    (f"redis://:{SECRET}@host:1/0", "redis://***@host:1/0"),
    (f"https://h/x?token={SECRET}&y=1", "https://h/x?token=***&y=1"),
    (f"https://h/x?X-Amz-Signature={SECRET}&y", "https://h/x?X-Amz-Signature=***&y"),
    (
        f"args: {{'api_key': ['{SECRET}', 'b'], 'c': 1}}",
        "args: {'api_key': ***, 'c': 1}",
    ),
    (f"Namespace(api_key=['{SECRET}'])", "Namespace(api_key=***)"),
    (f"['vllm', '--api-key', '{SECRET}']", "['vllm', '--api-key', '***']"),
    (f'{{\\"password\\": \\"{SECRET}\\"}}', '{\\"password\\": ***}'),
    (f'password="a\\"{SECRET}"', 'password="***"'),
    (f"secret=a'{SECRET} b", "secret=*** b"),
    (f'password="{SECRET}', "password=***"),
    (f"export A_TOKEN=$'{SECRET}'", "export A_TOKEN=***"),
    (f"passphrase => '{SECRET}'", "passphrase => '***'"),
    (f"$env:HF_TOKEN = '{SECRET}'", "$env:HF_TOKEN = '***'"),
    (f"PGPASSWORD={SECRET} psql", "PGPASSWORD=*** psql"),
    (f"REDIS_AUTH={SECRET}", "REDIS_AUTH=***"),
    (
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{SECRET}",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----***",
    ),
    ("hf_" + "aB3" * 10, "***"),
    ("ghp_" + "aB3" * 12, "***"),
    ("github_pat_" + "aB3" * 12, "***"),
    ("key sk-proj-" + "aB3" * 8, "key ***"),
    ("AKIA" + "ABCDEFGH12345678", "***"),
    ("LTAI" + "5tAbCdEfGhIj", "***"),
    ("glpat-" + "aB3" * 7, "***"),
    (f"eyJ{'a' * 10}.eyJ{'b' * 10}.{'c' * 10}", "***"),
    (
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\n",
    ),
    (
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}",
        "-----BEGIN OPENSSH PRIVATE KEY-----***",
    ),
]

READABLE = [
    "--tokenizer /path/to/it",
    "--tokenizer-mode auto",
    "--max-num-batched-tokens 2048",
    "tokenizer=Qwen/Qwen3",
    "token_ids=[1, 2]",
    "eos_token=</s>",
    "eos_token_id: 7",
    "time_per_output_token=12",
    "tokens_per_second: 3000",
    "unexpected token: foo",
    "error: expected primary-expression before 'token'",
    "auto token = next_token(7);",
    "for (auto token : tokens)",
    "if (token == other12)",
    "lexer::token::type",
    "HF_TOKEN_PATH=/home/me/.cache/token",
    "--ssl-keyfile /etc/key.pem",
    "cache_key=3",
    "public_key=abc",
    "keyword=3",
    "PWD=/home/me",
    "OLDPWD=/home/me",
    "first_pass=3",
    "basic information about secrets",
    "bearer authentication is used",
    "ssh://git@github.com/x",
    "https://host:8080/x@y",
    "sk-learn-contrib-examples-long-name",
    "--password -x",
    "--token",
    "cannot determine user credentials: No such process",
    "nothing at all",
]


class TestText:
    """Lines of logs and messages."""

    @pytest.mark.parametrize(("line", "left"), MASKED)
    def test_masks(self, line: str, left: str) -> None:
        """The secret is gone, its name is there, a second look changes nothing."""
        assert redact.text(line) == left
        assert redact.text(left) == left

    @pytest.mark.parametrize("line", READABLE)
    def test_leaves_ordinary_words(self, line: str) -> None:
        """A name that only sounds like a secret keeps its value."""
        assert redact.text(line) == line

    @pytest.mark.parametrize(
        "line",
        [
            "a" * 100_000 + "token",
            "token-" * 20_000,
            "-" * 100_000 + "key",
            "tokenizer=" * 10_000,
            "my_key: " * 12_000,
        ],
    )
    def test_long_lines_take_no_time(self, line: str) -> None:
        """A line of compiler flags, however long, does not hold up a build."""
        start = time.monotonic()
        assert len(redact.text(line)) == len(line)
        assert time.monotonic() - start < 2


def test_values() -> None:
    """What is masked is told to whoever must find it in other places."""
    line = f"a: {{'api_key': '{SECRET}'}} https://u:p1@h/ Bearer ab.12345 hf_{'a1' * 9}"
    assert redact.values(f"{line}\ntoken=***") == {
        *(SECRET, "p1", "ab.12345", "hf_" + "a1" * 9),
    }
    assert redact.values("nothing at all") == set()


class TestArgv:
    """Command lines, where each word is known."""

    @pytest.mark.parametrize(
        ("words", "left"),
        [
            (["x", "--hf-token", "a", "pos"], ["x", "--hf-token", "***", "pos"]),
            (
                ["--api-key", "a", "b", "--port", "1"],
                ["--api-key", "***", "***", "--port", "1"],
            ),
            (["--api-key=a"], ["--api-key=***"]),
            (["x", "--token", "-v"], ["x", "--token", "-v"]),
            (["env", "HF_TOKEN=a b c"], ["env", "HF_TOKEN=***"]),
            (["curl", "-u", "me:pw"], ["curl", "-u", "me:***"]),
            (["docker", "-u", "1000:1000"], ["docker", "-u", "1000:1000"]),
            (["--tokenizer", "q"], ["--tokenizer", "q"]),
        ],
    )
    def test_masks_words_of_their_own(self, words: list[str], left: list[str]) -> None:
        """The value behind a telling option is masked, and only that."""
        assert redact.argv(words) == left


class TestNames:
    """Names of variables and options."""

    @pytest.mark.parametrize(
        "name",
        [
            "HF_TOKEN",
            "token",
            "--api-key",
            "apiKey",
            "X-Api-Key",
            "my_password",
            "SSHPASS",
        ],
    )
    def test_secret(self, name: str) -> None:
        """These names hold secrets."""
        assert redact.is_secret_name(name)

    @pytest.mark.parametrize(
        "name", ["", "tokenizer", "max_tokens", "PATH", "KEY_COUNT", "pad_token", "=?"]
    )
    def test_harmless(self, name: str) -> None:
        """These do not."""
        assert not redact.is_secret_name(name)


def test_env_is_masked_by_name_and_by_shape() -> None:
    """A secret in an unsuspected variable is seen by its shape; None stays None."""
    got = redact.env(
        {"HF_TOKEN": "a", "X": "https://u:p@h/", "PATH": "/bin", "GONE": None}
    )
    assert got == {
        "HF_TOKEN": "***",
        "X": "https://***@h/",
        "PATH": "/bin",
        "GONE": None,
    }


def test_a_file_is_no_assignment() -> None:
    """What is said of a path whose last word sounds secret stays readable."""
    said = "cannot read /etc/passwd: Expecting value"
    assert redact.text(said) == said
    assert redact.text("/x/password=hunter2").endswith("password=***")


@pytest.mark.parametrize(
    "name", ["MYSERVICE_PW", "DBPASS", "AUTH", "NPM_TOK", "MYKEY", "REDIS_AUTH"]
)
def test_short_names_of_variables(name: str) -> None:
    """Variables that are abbreviated hold secrets, too."""
    assert redact.is_secret_name(name)
    assert redact.text(f"{name}=p@ss/Wort9") == f"{name}=***"


@pytest.mark.parametrize(
    "line", ["OLDPWD=/a", "first_pass = 3", "all passed in 3 s", "author = me"]
)
def test_words_that_only_look_alike(line: str) -> None:
    """Folders, stages of work and people are none."""
    assert redact.text(line) == line


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["--api-k=sesame"], ["--api-k=***"]),
        (
            ["--api_k", "a", "b", "--port", "1"],
            ["--api_k", "***", "***", "--port", "1"],
        ),
        (["--ap", "a", "--hf-tok", "b", "c"], ["--ap", "***", "--hf-tok", "***", "c"]),
        (["--rest=--hf_t b --host h"], ["--rest=--hf_t *** --host h"]),
        (["--api-server-count", "3"], ["--api-server-count", "3"]),
        (["--hf-overrides", "{}", "--apply", "x"],) * 2,
    ],
)
def test_beginnings_of_secret_options(words: list[str], left: list[str]) -> None:
    """An option counts as the one that its abbreviation stands for."""
    assert redact.argv(words) == left
