# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Cards, drivers and links as NVML tells them, and every way in which it does not."""

import importlib

import pytest

from tests.rig.support.fakenvml import GIB, FakeNvml, card
from tools.rig.host import gpu

BUS = ("0000:0a:00.0", "0000:0b:00.0")


def _linked(count=6, **options):
    """Return two cards with `count` links between them."""
    return [
        card(links=[BUS[1]] * count, **options),
        card(links=[BUS[0]] * count, **options),
    ]


class TestPresent:
    """A machine with cards."""

    def test_driver_and_card(self):
        """Driver, CUDA version, name, capability, memory and bus id are read."""
        seen = gpu.read(FakeNvml([card()]))
        assert (seen.state, seen.driver, seen.cuda) == ("present", "570.86.10", "12.8")
        only = seen.cards[0]
        assert (only.name, only.sm) == ("Tesla V100-SXM2-16GB", 70)
        assert (only.total, only.used) == (16 * GIB, GIB)
        assert (only.bus, only.uuid) == (BUS[0], "GPU-0")

    def test_bytes_are_decoded(self):
        """Older bindings answer in bytes."""
        seen = gpu.read(FakeNvml([card(name=b"V100")], driver=b"450.80.02"))
        assert (seen.driver, seen.cards[0].name) == ("450.80.02", "V100")

    def test_library_is_closed_again(self):
        """NVML is shut down, and a failing shutdown is no failure."""
        nvml = FakeNvml([card()])
        gpu.read(nvml)
        assert nvml.open == 0
        failing = FakeNvml([card()], fail={"nvmlShutdown": 999})
        assert gpu.read(failing).state == "present"

    @pytest.mark.parametrize(
        ("function", "field"),
        [
            ("nvmlDeviceGetCudaComputeCapability", "sm"),
            ("nvmlDeviceGetMemoryInfo", "total"),
            ("nvmlDeviceGetComputeRunningProcesses", "users"),
        ],
    )
    def test_unanswered_question_is_none(self, function, field):
        """What a driver does not tell is None, never zero."""
        seen = gpu.read(FakeNvml([card()], fail={function: 3}))
        assert getattr(seen.cards[0], field) is None

    def test_unknown_cuda_version_and_bus(self):
        """An old driver may know neither."""
        fail = {"nvmlSystemGetCudaDriverVersion_v2": 3, "nvmlDeviceGetPciInfo": 3}
        seen = gpu.read(FakeNvml([card()], fail=fail))
        assert (seen.cuda, seen.cards[0].bus) == ("", "")

    def test_lost_card_is_all_unknown(self):
        """A card that fell off the bus keeps its place in the list."""
        fail = {"nvmlDeviceGetHandleByIndex 1": 15}
        seen = gpu.read(FakeNvml(_linked(), fail=fail))
        assert (seen.cards[1].name, seen.cards[1].sm) == ("", None)
        assert (seen.pairs[0].links, seen.pairs[0].p2p) == (None, "unknown")


class TestAbsent:
    """A machine without cards, driver or package."""

    @pytest.mark.parametrize(
        ("code", "state", "word"),
        [
            (12, "absent", "libnvidia-ml"),
            (9, "absent", "not loaded"),
            (18, "broken", "differ in version"),
            (999, "broken", "does not start"),
        ],
    )
    def test_library_does_not_start(self, code, state, word):
        """Each reason is told apart; a driver that answers with an error is broken."""
        seen = gpu.read(FakeNvml(fail={"nvmlInit": code}))
        assert seen.state == state
        assert word in seen.reason

    def test_package_missing(self, monkeypatch):
        """Without nvidia-ml-py the reason says so."""

        def refuse(name, *args):
            raise ImportError(name)

        monkeypatch.setattr(importlib, "import_module", refuse)
        seen = gpu.read()
        assert seen.state == "absent"
        assert "nvidia-ml-py" in seen.reason

    def test_driver_without_cards(self):
        """A driver that sees no card is absent and still has a version."""
        seen = gpu.read(FakeNvml())
        assert (seen.state, seen.driver) == ("absent", "570.86.10")

    def test_cards_cannot_be_counted(self):
        """A driver that cannot count its cards is broken."""
        assert gpu.read(FakeNvml(fail={"nvmlDeviceGetCount": 999})).state == "broken"

    def test_real_binding_on_this_machine_never_raises(self):
        """Whatever this machine has, asking it is safe."""
        assert gpu.read().state in ("present", "absent", "broken")


class TestProcesses:
    """Who uses which card."""

    def test_pids_by_card(self):
        """Pids are listed for each card, also where their memory is not told."""
        cards = [card(users=[(41, GIB), (42, None)]), card()]
        assert gpu.processes(FakeNvml(cards)) == {0: (41, 42), 1: ()}

    def test_memory_of_a_process_may_be_unknown(self):
        """In a container NVML names the pid and not its memory."""
        seen = gpu.read(FakeNvml([card(users=[(42, None)])]))
        assert seen.cards[0].users == (gpu.Use(42, None),)

    def test_unknown_is_none_and_not_empty(self):
        """A card that does not tell must not pass for a free one."""
        fail = {"nvmlDeviceGetComputeRunningProcesses": 3}
        assert gpu.processes(FakeNvml([card()], fail=fail)) is None

    def test_absent_is_none(self):
        """Without a driver nothing is known either."""
        assert gpu.processes(FakeNvml(fail={"nvmlInit": 12})) is None


class TestPairs:
    """How two cards reach each other."""

    def test_direct_links_are_counted(self):
        """Six active links to the other card are six links."""
        pair = gpu.read(FakeNvml(_linked(6))).pairs[0]
        assert (pair.a, pair.b, pair.links, pair.p2p) == (0, 1, 6, "ok")

    def test_inactive_links_do_not_count(self):
        """A link that is down is passed over."""
        cards = [card(links=[BUS[1], None, BUS[1]]), card(links=[BUS[0]] * 2)]
        assert gpu.read(FakeNvml(cards)).pairs[0].links == 2

    def test_links_through_a_switch(self):
        """Far ends that are no card are a switch, which joins all cards."""
        switch = "0000:c0:00.0"
        cards = [card(links=[switch] * 6), card(links=[switch] * 4)]
        assert gpu.read(FakeNvml(cards)).pairs[0].links == 4

    def test_third_card_is_no_switch(self):
        """Links that go to another card do not join these two."""
        third = "0000:0c:00.0"
        cards = [card(links=[third]), card(links=[third]), card(links=list(BUS))]
        pairs = {(p.a, p.b): p.links for p in gpu.read(FakeNvml(cards)).pairs}
        assert pairs == {(0, 1): 0, (0, 2): 1, (1, 2): 1}

    def test_cards_without_nvlink(self):
        """PCIe cards have no link at all, which is zero and not unknown."""
        pair = gpu.read(FakeNvml([card(), card()], p2p=1)).pairs[0]
        assert (pair.links, pair.p2p) == (0, "no")

    def test_error_makes_links_unknown(self):
        """A driver error is unknown, not zero."""
        fail = {"nvmlDeviceGetNvLinkState": 999}
        assert gpu.read(FakeNvml(_linked(), fail=fail)).pairs[0].links is None

    @pytest.mark.parametrize(
        "nvml",
        [
            FakeNvml(_linked(), p2p=6),
            FakeNvml(_linked(), fail={"nvmlDeviceGetP2PStatus": 3}),
        ],
    )
    def test_peer_access_may_be_unknown(self, nvml):
        """Peer access that the driver does not state is unknown."""
        assert gpu.read(nvml).pairs[0].p2p == "unknown"
