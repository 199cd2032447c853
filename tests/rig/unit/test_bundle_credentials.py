# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a bundle must know of in order to leave it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.support.fakeproc import FakeProc
from tools.rig.host import credentials
from tools.rig.host import identity as identities


class TestCredentials:
    """Where secrets are looked up."""

    def test_environment(self) -> None:
        """Values of telling names, and passwords in the middle of others."""
        env = {
            "HF_TOKEN": " tok1 ",
            "URL": "https://bob:pw1@h/x",
            "ONLY": "https://abcdefghij0123456789@h/x",
            "USUAL": "ssh://git@h/x",
            "EMPTY_TOKEN": "",
            "PATH": "/bin",
        }
        found = set(credentials.of_environment(env))
        assert found == {"tok1", "pw1", "abcdefghij0123456789"}

    @pytest.mark.parametrize(
        ("name", "text", "secret"),
        [
            ("token", "plainToken\n", "plainToken"),
            (".netrc", "machine a login b password pw1", "pw1"),
            ("pip.conf", "[global]\nindex-url = https://b:p@ss@h/x\n", "p@ss"),
            ("config.json", '{"auth": "Ym9iOnNlc2FtZQ=="}', "sesame"),
            ("credentials", "aws_secret_access_key = a/b+c\n", "a/b+c"),
            ("hosts.yml", "  oauth_token: gho1\n", "gho1"),
            ("x.json", '{"private_key": "abc", "b": 1}', "abc"),
        ],
    )
    def test_files(self, name: str, text: str, secret: str) -> None:
        """The forms in which tools keep passwords are read."""
        assert secret in set(credentials.of_file(name, text))

    def test_everywhere(self, tmp_path: Path) -> None:
        """Environment, processes, home, checkout and system are all read."""
        home, checkout = tmp_path / "home", tmp_path / "checkout"
        (home / ".cache/huggingface").mkdir(parents=True)
        (home / ".cache/huggingface/token").write_text("fromFile1")
        (checkout / ".git").mkdir(parents=True)
        (checkout / ".git/config").write_text("url = https://u:fromGit1@h/x\n")
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/pip.conf").write_text("index-url = https://u:fromPip1@h/\n")
        (tmp_path / "hf").mkdir()
        (tmp_path / "hf/token").write_text("fromHome1")
        proc = FakeProc(tmp_path / "proc")
        proc.add(
            9,
            cmdline=["x", "--api-key", "fromArg1", "A_TOKEN=fromWord1", "-v"],
            environ={"B_TOKEN": "fromEnv1"},
        )
        env = {"HOME": str(home), "HF_HOME": str(tmp_path / "hf"), "C_TOKEN": "own1"}
        found = set(
            credentials.secrets(env, checkout=checkout, proc=proc.root, root=tmp_path)
        )
        assert found >= {
            *("fromFile1", "fromGit1", "fromPip1", "fromHome1", "fromArg1"),
            *("fromWord1", "fromEnv1", "own1"),
        }

    def test_unreadable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What exists and cannot be read is told: it could not be masked."""
        (tmp_path / ".netrc").write_text("x")
        is_file = Path.is_file

        def refuse(path: Path) -> bool:
            if path.name == ".netrc":
                raise PermissionError(13, "Permission denied")
            return is_file(path)

        monkeypatch.setattr(Path, "is_file", refuse)
        told: list[str] = []
        env = {"HOME": str(tmp_path)}
        none = tmp_path / "none"
        list(credentials.secrets(env, proc=none, root=none, note=told.append))
        assert "cannot look for what to mask in .netrc (Permission denied)" in told

    def test_identity(self, tmp_path: Path) -> None:
        """Users, hosts, domains, homes and ids come from where the system has them."""
        etc = tmp_path / "etc"
        etc.mkdir()
        (etc / "hostname").write_text("castle\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n10.0.0.2 castle.hyrule.org\n")
        (etc / "resolv.conf").write_text("nameserver 10.0.0.1\nsearch lake.org local\n")
        (etc / "passwd").write_text("root:x:0:0::/root:/bin/sh\nlink:x:1001:1::/h:/b\n")
        (etc / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
        proc = FakeProc(tmp_path / "proc")
        (proc.root / "sys/kernel/random/boot_id").write_text("12-34-56-78\n")
        env = {"HOME": "/home/zelda", "USER": "zelda", "SUDO_UID": "0"}
        found = identities.identity(
            env,
            checkout=tmp_path,
            root=tmp_path,
            proc=proc.root,
            fqdn=lambda: "c.d.org",
        )
        assert {"zelda", "link"} <= set(found.users)
        assert {"castle", "c"} <= set(found.hosts)
        assert {"hyrule.org", "lake.org", "d.org"} <= set(found.domains)
        assert "/home/zelda" in found.homes
        assert found.ids == (
            *("0123456789abcdef0123456789abcdef", "12-34-56-78", "12345678"),
        )
