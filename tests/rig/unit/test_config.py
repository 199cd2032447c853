# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Settings: which source wins, and what a bad value gets."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tools.rig.base import config
from tools.rig.base.errors import ExitCode, UsageError


def refused(**sources: Any) -> UsageError:
    """Return the error that these sources get."""
    with pytest.raises(UsageError) as caught:
        config.resolve(**{"env": {}, **sources})
    assert caught.value.code == ExitCode.USAGE
    return caught.value


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    """Return the place of a ``rig.toml`` that does not exist yet."""
    return tmp_path / "rig.toml"


class TestOrder:
    """The strongest source wins."""

    def test_each_step_down(self, toml: Path) -> None:
        """Command line, environment, file, default: a silent one yields to the next."""
        toml.write_text('jobs = 1\nprofile = "file"\n')
        env = {"MAX_JOBS": "2"}
        got = config.resolve({"jobs": 3}, env, toml)
        assert (got.jobs, got.origin["jobs"]) == (3, "command line")
        got = config.resolve({"jobs": None}, env, toml)
        assert (got.jobs, got.origin["jobs"]) == (2, "environment (MAX_JOBS)")
        got = config.resolve({}, {"MAX_JOBS": ""}, toml)
        assert (got.jobs, got.origin["jobs"]) == (1, str(toml))
        got = config.resolve({}, {}, None)
        assert (got.jobs, got.origin["jobs"]) == (None, "default")
        assert got.torch_index == "auto" and got.git_mirrors == {}

    def test_a_switch_that_nobody_typed(self) -> None:
        """A flag that is off on the command line leaves the environment in force."""
        assert config.resolve({"force": False}, {"ONECAT_FORCE": "1"}).force is True
        assert config.resolve({"force": True}, {}).force is True

    def test_our_own_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without an environment given, our own is read."""
        monkeypatch.setenv("ONECAT_OFFLINE", "1")
        assert config.resolve().offline is True

    def test_unknown_names_are_attribute_errors(self) -> None:
        """Settings behave like an ordinary object, also when copied."""
        got = config.resolve({}, {})
        assert not hasattr(got, "nonsense")
        assert copy.copy(got).values == got.values


class TestBadValues:
    """Every bad value is refused with a good one to type."""

    @pytest.mark.parametrize("bad", ["0", "-3", "many", 0, -3, "", "2.5", 2.5, True])
    def test_jobs(self, bad: Any) -> None:
        """A number of jobs is a whole number above zero."""
        error = refused(cli={"jobs": bad})
        assert "must be a whole number from 1 to 9999" in error.what
        assert error.what.startswith(f"jobs = {bad!r} from the command line: ")
        assert error.hint == "--jobs 4"

    def test_jobs_in_the_environment(self) -> None:
        """The variable to correct is named."""
        error = refused(env={"MAX_JOBS": "many"})
        assert "from the environment (MAX_JOBS)" in error.what
        assert error.hint == "export MAX_JOBS=4"

    @pytest.mark.parametrize("bad", ["yes", "true", "2", "no"])
    def test_force(self, bad: str) -> None:
        """A half-typed override never passes silently."""
        error = refused(env={"ONECAT_FORCE": bad})
        assert "must be 1 or unset" in error.what
        assert error.hint == "export ONECAT_FORCE=1"
        assert refused(cli={"force": bad}).hint == "--force"

    @pytest.mark.parametrize(
        ("value", "meant"), [("1", True), ("0", False), (" 1 ", True), (True, True)]
    )
    def test_good_switches(self, value: Any, meant: bool) -> None:
        """1 and 0 are all there is."""
        assert config.flag_one(value) is meant
        assert config.flag_one(False) is False

    @pytest.mark.parametrize("name", ["profile", "source", "local_root", "apt_mirror"])
    @pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\0b", " ", 7])
    def test_text_and_folders(self, name: str, bad: Any) -> None:
        """A line break, nothing, or no text at all is refused."""
        error = refused(cli={name: bad})
        assert "one line of text" in error.what
        assert error.hint.startswith(f"--{name.replace('_', '-')} ")

    @pytest.mark.parametrize(
        "bad",
        [
            *("foo", "http:", "http://", "http:///debian", "htp://m.invalid/debian"),
            *("/srv/debian", "file:debian", "http://m.invalid:x/", "//m.invalid/x"),
            *("http://m.invalid/de bian", "http://[::1/debian", "a:b", "m.invalid:80"),
        ],
    )
    def test_archive(self, bad: str) -> None:
        """What apt could not read as an address is refused before apt is asked."""
        error = refused(env={"ONECAT_APT_MIRROR": bad})
        assert "from the environment (ONECAT_APT_MIRROR)" in error.what
        assert error.hint == "export ONECAT_APT_MIRROR=http://mirror.example/debian"

    @pytest.mark.parametrize("name", ["local_root", "source"])
    def test_relative_folders(
        self, name: str, toml: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """A folder that depends on where one stands is refused, unless it is typed."""
        stand = tmp_path / "stand here"
        stand.mkdir()
        monkeypatch.chdir(stand)
        variable = f"ONECAT_{name.upper()}"
        with pytest.raises(UsageError, match="must be an absolute path") as caught:
            config.resolve({}, {variable: "x/y"})
        assert caught.value.hint == f"export {variable}='{stand}/x/y'"
        toml.write_text(f'{name} = "../y"\n')
        with pytest.raises(UsageError, match="must be an absolute path") as caught:
            config.resolve({}, {}, toml)
        whole = toml.parent.parent / "y"
        assert caught.value.hint == f'write {name} = "{whole}" in {toml}'
        assert config.resolve({name: "x"}, {}).values[name] == stand / "x"
        assert config.resolve({}, {variable: "~"}).values[name].is_absolute()

    def test_nobodys_home(self) -> None:
        """A home folder of a user that does not exist is a wrong setting."""
        error = refused(env={"ONECAT_SOURCE": "~no-such-user-here/x"})
        assert "source" in error.what

    def test_index(self) -> None:
        """Only the three known words name an index."""
        assert "auto, pytorch or default" in refused(cli={"torch_index": "x"}).what
        assert config.resolve({"torch_index": "default"}, {}).torch_index == "default"

    @pytest.mark.parametrize("bad", ["a", "=b", "a=", "a=b c"])
    def test_mirrors(self, bad: str) -> None:
        """Half a pair is refused."""
        error = refused(env={"ONECAT_GIT_MIRRORS": bad})
        assert "PREFIX=MIRROR" in error.what
        assert error.hint.startswith("export ONECAT_GIT_MIRRORS=https://")


class TestGoodValues:
    """How values are read."""

    def test_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A folder becomes absolute, with the home folder filled in."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", "/home/me")
        assert config.folder("a b") == tmp_path / "a b"
        assert config.folder("~/x") == Path("/home/me/x")

    @pytest.mark.parametrize(
        "good",
        [
            *("http://m.invalid/debian", "https://me:x@m.invalid:8443/d/", "file:/d"),
            *("http://[::1]:80/d", "tor+https://m.invalid/d"),
            *("mirror+http://m.invalid/list.txt", "mirror+file:/l", "copy:///srv/d"),
        ],
    )
    def test_archive(self, good: str) -> None:
        """An address stays as it is, whatever apt fetches it with."""
        got = config.resolve({}, {"ONECAT_APT_MIRROR": good})
        assert got.apt_mirror == good

    def test_mirrors(self, toml: Path) -> None:
        """Words in the environment and a table in the file mean the same."""
        toml.write_text('[git_mirrors]\n"https://a/" = "/b"\n"https://c/" = "/d"\n')
        pairs = {"https://a/": "/b", "https://c/": "/d"}
        words = "https://a/=/b https://c/=/d"
        assert config.resolve({}, {}, toml).git_mirrors == pairs
        assert config.resolve({}, {"ONECAT_GIT_MIRRORS": words}).git_mirrors == pairs


class TestFile:
    """The user's rig.toml."""

    def test_unknown_key(self, toml: Path) -> None:
        """A slip in a key is named together with what was meant."""
        toml.write_text("local-rot = '/x'\n")
        error = refused(file=toml)
        assert error.what == f"unknown setting 'local-rot' in {toml}"
        assert error.hint == "write local_root = ..."
        assert "offline" in error.usual

    def test_a_key_like_no_other(self, toml: Path) -> None:
        """Where nothing is near, all known keys are listed."""
        toml.write_text("zzz = 1\n")
        assert refused(file=toml).hint == f"correct {toml}"

    @pytest.mark.parametrize(
        ("line", "hint"),
        [
            ("jobs = 0", "write jobs = 4 in "),
            ("profile = 3", 'write profile = "v100-cu128" in '),
            ("git_mirrors = 'x'", 'write git_mirrors = { "https://'),
        ],
    )
    def test_bad_value(self, toml: Path, line: str, hint: str) -> None:
        """The hint is a line that can stand in the file."""
        toml.write_text(line)
        error = refused(file=toml)
        assert error.hint.startswith(hint)
        assert f"from {toml}" in error.what

    @pytest.mark.parametrize("content", [b"jobs =", b"profile = '\xff'"])
    def test_no_toml(self, toml: Path, content: bytes) -> None:
        """A file that cannot be read is named."""
        toml.write_bytes(content)
        assert refused(file=toml).what.startswith(f"cannot read {toml}")

    def test_a_folder_of_that_name(self, toml: Path) -> None:
        """A folder is no settings file."""
        toml.mkdir()
        assert refused(file=toml).what.startswith(f"cannot read {toml}")

    def test_missing(self, toml: Path) -> None:
        """The file is optional, unless the user names it."""
        assert config.resolve({}, {}, toml).jobs is None
        error = refused(env={"ONECAT_CONFIG": str(toml)}, file=toml)
        assert error.hint == "unset ONECAT_CONFIG"


class TestVariables:
    """Variables that nobody reads."""

    @pytest.mark.parametrize(
        ("slip", "meant"),
        [
            ("ONECAT_FORCED", "ONECAT_FORCE"),
            ("onecat_force", "ONECAT_FORCE"),
            ("ONE_CAT_FORCE", "ONECAT_FORCE"),
            ("ONECAT_LOCALROOT", "ONECAT_LOCAL_ROOT"),
            ("ONECAT_JOBS", "MAX_JOBS"),
            ("ONECAT_MAX_JOBS", "MAX_JOBS"),
            ("ONECAT_CONFIGS", "ONECAT_CONFIG"),
        ],
    )
    def test_a_slip_is_refused(self, slip: str, meant: str) -> None:
        """A misspelt override would silently do nothing, so it is an error."""
        error = refused(env={slip: "a b"})
        assert error.what == f"unknown variable {slip}"
        assert error.hint == f"unset {slip}; export {meant}='a b'"

    @pytest.mark.parametrize(
        "name",
        [
            "ONECAT_VLLM_PIN_TORCH_CU128",
            "ONECAT_TORCH_CU128_URLS",
            "ONECAT_TEST_CACHE",
            "ONECAT_DEBUG",
            "ONECAT_SOMETHING_NEW",
            "ONECAT",
            "FORCE",
            "JOBS",
        ],
    )
    def test_others_are_left_alone(self, name: str) -> None:
        """The host repository reads variables of its own, and others may come."""
        assert config.resolve({}, {name: "x"}).origin["force"] == "default"


def test_every_setting_has_an_example_that_it_accepts() -> None:
    """What an error tells people to type works."""
    for setting in config.SETTINGS:
        assert setting.parse(setting.example) is not None
        assert setting.help and setting.toml_example()
