# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Memory, disk, network and variable checks, with one thing changed."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support import fakemachine as fake
from tools.rig.base.state import StateRoot
from tools.rig.builds.candidates import Candidate
from tools.rig.host.loader import Cudnn
from tools.rig.host.look import Hung, Link
from tools.rig.host.memory import Cores, Memory
from tools.rig.steps.checks import (
    environment,
    memory,
    network,
    storage,
)

GIB = 1 << 30
H200 = replace(fake.V100, name="H200", sm=90)


class TestMemory:
    """Memory and temporary files."""

    def test_jobs_from_memory_and_cores(self):
        """Eight cores and 60 GiB allow eight compiles of 4 GiB."""
        found = memory.memory(fake.facts())
        assert (found.status, found.hint) == ("ok", "")
        assert found.detail.endswith(
            "room for 8 compiles of 4 GiB, and more of smaller ones"
        )

    def test_memory_bounds_the_jobs(self):
        """9 GiB below a cgroup limit allow two."""
        have = Memory(64 * GIB, 60 * GIB, 10 * GIB, "/x/memory.max", 9 * GIB)
        found = memory.memory(fake.facts(memory=lambda: have))
        assert "2 compiles" in found.detail
        assert "10.0 GiB by its cgroup" in found.detail

    def test_less_than_one_compile_is_a_warning(self):
        """2 GiB may be too few for a single compile."""
        have = Memory(4 * GIB, 2 * GIB, None, "", 2 * GIB)
        assert memory.memory(fake.facts(memory=lambda: have)).status == "warn"

    def test_user_may_ask_for_too_many(self):
        """MAX_JOBS is a cap and no promise: the admission sees to the memory."""
        have = Memory(16 * GIB, 16 * GIB, None, "", 16 * GIB)
        facts = fake.facts(memory=lambda: have, settings=fake.settings(jobs=16))
        found = memory.memory(facts)
        assert found.status == "ok"
        assert "room for 4 compiles" in found.detail
        assert "never more than 16 (MAX_JOBS)" in found.detail

    def test_unreadable_memory_is_unknown(self):
        """Zero bytes mean that nothing could be read."""
        have = Memory(0, 0, None, "", 0)
        facts = fake.facts(memory=lambda: have, cores=lambda: Cores(1, None, 1))
        assert memory.memory(facts).status == "unknown"

    @pytest.mark.parametrize(
        ("change", "status"),
        [
            ({}, "ok"),
            ({"fs": "tmpfs"}, "warn"),
            ({"free": GIB}, "warn"),
            ({"writable": False}, "warn"),
            ({"exists": False}, "warn"),
            ({"hung": True, "problem": "no answer"}, "warn"),
        ],
    )
    def test_temporary_files(self, change, status):
        """Memory, a full disk, no permission and a stuck one are worked round."""
        found = memory.tmpdir(fake.facts(disk=lambda path: fake.disk(path, **change)))
        assert found.status == status
        assert bool(found.workaround) == (status == "warn")

    def test_tmpdir_is_honoured(self, tmp_path):
        """The user's TMPDIR is the one that is looked at."""
        found = memory.tmpdir(fake.facts({"TMPDIR": str(tmp_path)}))
        assert found.detail.startswith(str(tmp_path))

    def test_a_tmpdir_that_is_no_folder(self, tmp_path):
        """A build refuses it at once, so the machine cannot as things stand."""
        found = memory.tmpdir(fake.facts({"TMPDIR": str(tmp_path / "none")}))
        assert (found.status, found.hint) == ("fail", "unset TMPDIR")
        assert "is no folder" in found.detail


class TestStorage:
    """Places, room, and the checkout's disk."""

    def test_place_for_the_environment(self):
        """The place that a build would choose is named with its room."""
        found = storage.environment(fake.facts())
        assert found.status == "ok"
        assert "100.0 GiB free" in found.detail

    def test_no_place_fails_with_each_reason(self):
        """Every place that will not do is told with its reason."""
        full = Candidate(Path("/s"), "state folder", fake.disk("/s", free=GIB))
        found = storage.environment(fake.facts(survey=fake.survey(candidates=(full,))))
        assert (found.status, "no space" in found.detail) == ("fail", True)
        assert "ONECAT_LOCAL_ROOT" in found.hint

    def test_a_venv_of_the_users_own_is_left(self):
        """A real directory at .venv is told, with the way to make room for the link."""
        checkout = replace(fake.survey().checkout, link=Link("directory"))
        found = storage.environment(fake.facts(survey=fake.survey(checkout=checkout)))
        assert (found.status, "of yours" in found.detail) == ("warn", True)
        assert found.hint

    def test_cache_lies_with_the_environment(self):
        """Without UV_CACHE_DIR there is no second place."""
        assert storage.space_cache(fake.facts()).status == "skip"

    @pytest.mark.parametrize(
        ("change", "status"),
        [
            ({}, "ok"),
            ({"free": GIB}, "fail"),
            ({"free_inodes": 5}, "warn"),
            ({"hung": True, "problem": "no answer"}, "fail"),
        ],
    )
    def test_room_for_the_users_cache(self, change, status):
        """A cache of the user's own needs room of its own."""
        facts = fake.facts(
            {"UV_CACHE_DIR": "/cache"}, disk=lambda path: fake.disk(path, **change)
        )
        assert storage.space_cache(facts).status == status

    @pytest.mark.parametrize(("free", "status"), [(50 * GIB, "ok"), (GIB, "fail")])
    def test_room_for_the_build(self, free, status):
        """Objects and sources go to the checkout's disk."""
        seen = fake.survey(checkout_disk=fake.disk(free=free))
        assert storage.space_build(fake.facts(survey=seen)).status == status

    @pytest.mark.parametrize(
        ("change", "status", "workaround"),
        [
            ({}, "ok", ""),
            ({"rates": fake.NAS}, "warn", "environment on a local disk"),
            ({"fs": "nfs4"}, "warn", "environment on a local disk"),
            ({"rates": None}, "unknown", ""),
            ({"rates": None, "problem": "Read-only file system"}, "fail", ""),
        ],
    )
    def test_the_checkouts_disk(self, change, status, workaround):
        """Slow or network is a work-round, not writable is a failure."""
        seen = fake.survey(checkout_disk=fake.disk(**change))
        found = storage.checkout_disk(fake.facts(survey=seen))
        assert (found.status, found.workaround) == (status, workaround)

    @pytest.mark.parametrize("statistics", [(), ("device nas:/x mounted on /mnt",)])
    def test_hanging_disk_names_the_mount(self, statistics):
        """A stuck NFS mount is named with its statistics."""

        def hang(question):
            raise Hung("/mnt", fake.mount("nfs4", "/mnt", "nas:/x"), 15, statistics)

        found = storage.checkout_disk(fake.facts(disks=hang))
        assert (found.status, found.hint) == ("fail", "ping nas")
        assert all(line in found.detail for line in statistics)

    @pytest.mark.parametrize(("uid", "status"), [(fake.UID, "ok"), (0, "warn")])
    def test_owner_of_the_checkout(self, uid, status):
        """A checkout of somebody else's is worked round as git needs it."""
        found = storage.checkout_owner(fake.facts(survey=fake.survey(uid=uid)))
        assert found.status == status
        assert bool(found.workaround) == (status == "warn")


class TestNetwork:
    """Proxies."""

    @pytest.mark.parametrize(
        ("env", "status"),
        [
            ({}, "ok"),
            ({"https_proxy": "http://p:1", "NO_PROXY": "localhost,127.0.0.1"}, "ok"),
            ({"https_proxy": "http://p:1"}, "warn"),
        ],
    )
    def test_requests_to_this_machine(self, env, status):
        """A proxy must not stand between a server here and its health check."""
        assert network.proxy(fake.facts(env)).status == status

    def test_hint_keeps_what_the_user_has(self):
        """The names already in NO_PROXY stay, and no password is shown."""
        env = {"https_proxy": "http://me:secret@p:1", "NO_PROXY": "nas"}
        found = network.proxy(fake.facts(env))
        assert found.hint.startswith("export NO_PROXY=nas,localhost,127.0.0.1")
        assert "secret" not in str(found)


class TestEnvironment:
    """Leftovers in the environment."""

    def test_stub_on_the_library_path(self):
        """A stub of libcuda is named, and the rest of the path is kept in the hint."""
        stub = Path("/opt/cuda/lib64/stubs/libcuda.so")
        env = {"LD_LIBRARY_PATH": "/opt/cuda/lib64/stubs/:/opt/x:"}
        found = environment.libcuda_stub(fake.facts(env, stubs=lambda env: [stub]))
        assert (found.status, found.hint) == ("warn", "export LD_LIBRARY_PATH=/opt/x")
        env = {"LD_LIBRARY_PATH": "/opt/cuda/lib64/stubs"}
        found = environment.libcuda_stub(fake.facts(env, stubs=lambda env: [stub]))
        assert found.hint == "unset LD_LIBRARY_PATH"
        assert environment.libcuda_stub(fake.facts()).status == "ok"

    @pytest.mark.parametrize(
        ("version", "origin", "sms", "status"),
        [
            ("9.10.2.21", "environment", (70,), "ok"),
            ("9.11.0", "environment", (70,), "warn"),
            ("9.11.0", "LD_LIBRARY_PATH", (70,), "warn"),
            ("9.14.0", "system", (70,), "ok"),
            ("9.12.0", "environment", (80,), "ok"),
            ("8.9.7", "environment", (70,), "ok"),
        ],
    )
    def test_cudnn_for_volta(self, version, origin, sms, status):
        """9.11 needs sm_75; a copy that torch never meets does not matter."""
        copies = [Cudnn(version, Path("/usr/lib/libcudnn.so.9"), origin)]
        facts = fake.facts(
            cudnn=lambda env, venv: copies, profile=fake.profile(sms=sms)
        )
        assert environment.cudnn(facts).status == status

    def test_no_cudnn_is_skipped(self):
        """Torch brings its own."""
        assert environment.cudnn(fake.facts()).status == "skip"

    @pytest.mark.parametrize(
        ("env", "text", "status", "word"),
        [
            ({}, None, "ok", "none set"),
            ({"VLLM_USE_V1": "1"}, None, "warn", "VLLM_USE_V1"),
            ({"VLLM_LOGGING_LEVEL": "DEBUG"}, None, "ok", "VLLM_LOGGING_LEVEL"),
            ({"VLLM_USE_V1": "1"}, '    "VLLM_USE_V1": lambda: 1,\n', "ok", "USE_V1"),
            (
                {"VLLM_MINE": "1"},
                '    "VLLM_USE_V1": lambda: 1,\n',
                "warn",
                "VLLM_MINE",
            ),
        ],
    )
    def test_dead_variables(self, env, text, status, word):
        """The checkout's own list goes before the table."""
        found = environment.vllm_variables(
            fake.facts(env, text=lambda path: (text, ""))
        )
        assert (found.status, word in found.detail) == (status, True)

    def test_dead_variables_are_unset_together(self):
        """One command takes them all away."""
        env = {"VLLM_DEBUG": "1", "VLLM_ATTENTION_BACKEND": "X"}
        found = environment.vllm_variables(fake.facts(env))
        assert found.hint == "unset VLLM_ATTENTION_BACKEND VLLM_DEBUG"
        assert "VLLM_LOGGING_LEVEL=DEBUG" in found.detail


class TestFacts:
    """Where the facts look."""

    def test_state_folder_is_given_set_or_remembered(self, tmp_path):
        """The folder of the caller comes first, then the setting, then memory."""
        given = fake.facts(root=StateRoot(tmp_path))
        assert given.state.path == tmp_path
        chosen = fake.facts(settings=fake.settings(local_root=tmp_path / "x"))
        assert chosen.state.path == tmp_path / "x"
        before = fake.facts(chosen_root=lambda env: tmp_path / "y")
        assert before.state.path == tmp_path / "y"
        assert fake.facts().state is None

    def test_brought_toolkits_are_looked_for_in_it(self, tmp_path):
        """A toolkit that was brought earlier is found again."""
        asked = []
        facts = fake.facts(
            root=StateRoot(tmp_path),
            toolkits=lambda env, folder: asked.append(folder) or [fake.toolkit()],
        )
        assert facts.release == "12.4"
        assert asked == [tmp_path / "toolkits"]

    def test_release_of_what_would_be_brought(self):
        """A recipe's release counts, and no release is an empty one."""
        facts = fake.facts(toolkits=lambda env, folder: [])
        assert facts.release == "12.4"
        facts = fake.facts(
            toolkits=lambda env, folder: [], recipes=lambda owner, parts: []
        )
        assert facts.release == ""
