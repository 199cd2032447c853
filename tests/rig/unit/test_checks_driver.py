# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Driver checks, on a machine with one thing changed."""

from dataclasses import replace

import pytest

from tests.rig.support import fakemachine as fake
from tools.rig.host.gpu import Gpus
from tools.rig.host.pci import PciCard
from tools.rig.host.system import Module
from tools.rig.steps.checks import driver

ABSENT = Gpus("absent", "no NVIDIA driver")
BROKEN = Gpus("broken", "driver library and kernel module differ in version")
H200 = replace(fake.V100, name="H200", sm=90)


def gpus(driver="570.86.10", cards=(fake.V100,)):
    """Return a driver of a version with cards."""
    return lambda: Gpus("present", "", driver, "12.8", tuple(cards))


class TestDriver:
    """Driver, module, cards and links."""

    def test_cards_are_listed(self):
        """Name, architecture and memory are shown."""
        found = driver.gpus(fake.facts())
        assert found.detail == "0: Tesla V100-SXM2-16GB (sm_70, 16 GiB)"

    def test_nothing_here_is_skipped(self):
        """No driver and no card is an ordinary machine."""
        facts = fake.facts(gpus=lambda: ABSENT, pci_cards=lambda: [])
        assert driver.gpus(facts).status == "skip"

    @pytest.mark.parametrize(
        ("bound", "word"), [("", "PCI bus"), ("nouveau", "nouveau")]
    )
    def test_card_without_a_driver_is_a_warning(self, bound, word):
        """A V100 on the bus without a driver is told, with the last branch for it."""
        card = replace(fake.ON_BUS, driver=bound)
        facts = fake.facts(gpus=lambda: ABSENT, pci_cards=lambda: [card])
        found = driver.gpus(facts)
        assert (found.status, word in found.detail) == ("warn", True)
        assert "Tesla V100 SXM2 16GB" in found.detail
        assert "R580" in found.hint

    def test_broken_driver_is_a_warning(self):
        """A driver that answers with an error is neither absent nor fine."""
        facts = fake.facts(gpus=lambda: BROKEN)
        assert driver.gpus(facts).status == "warn"
        assert driver.driver(facts).status == "unknown"
        assert driver.volta_driver(facts).status == "unknown"

    def test_cards_of_another_architecture(self):
        """A profile for sm_70 on a machine with an H200 alone is told."""
        found = driver.gpus(fake.facts(gpus=gpus(cards=[H200])))
        assert (found.status, "sm_70" in found.detail) == ("warn", True)
        both = driver.gpus(fake.facts(gpus=gpus(cards=[H200, fake.V100])))
        assert both.status == "ok"

    def test_card_that_says_nothing(self):
        """A card without name and capability is shown as unknown."""
        lost = replace(fake.V100, name="", sm=None, total=None)
        assert driver.gpus(fake.facts(gpus=gpus(cards=[lost]))).detail == "0: unknown"

    @pytest.mark.parametrize("version", ["580.65.06", "580.95.05", "590.44.01"])
    def test_a_cuda_13_driver_runs_every_12_toolkit(self, version):
        """A newer driver is never refused for an older toolkit."""
        found = driver.driver(fake.facts(gpus=gpus(version)))
        assert found.status == "ok"

    def test_driver_older_than_the_minimum_fails(self):
        """470 does not run CUDA 12 programs."""
        found = driver.driver(fake.facts(gpus=gpus("470.82.01")))
        assert (found.status, "525.60.13" in found.detail) == ("fail", True)
        assert "R580" in found.hint

    def test_driver_older_than_the_wheels_toolkit_is_warned_about(self):
        """535 runs CUDA 12 programs, but may refuse PTX of the wheel's 12.8."""
        found = driver.driver(fake.facts(gpus=gpus("535.104.05")))
        assert (found.status, "570.26" in found.detail) == ("warn", True)

    def test_profile_without_torch_looks_at_the_toolkit(self):
        """Without a wheel the toolkit's own bundled driver is the mark."""
        facts = fake.facts(
            gpus=gpus("535.104.05"), profile=fake.profile(torch_variant=None)
        )
        assert "550.54.14" in driver.driver(facts).detail

    def test_newer_card_gets_another_hint(self):
        """R580 is the limit of Volta and of nobody else."""
        facts = fake.facts(
            gpus=gpus("470.82.01", [replace(fake.V100, sm=80)]),
            profile=fake.profile(sms=(80,)),
        )
        assert driver.driver(facts).hint == "install a newer NVIDIA driver"

    def test_no_toolkit_to_compare_with(self):
        """Without a toolkit the driver is unknown and not good."""
        facts = fake.facts(
            toolkits=lambda env, folder: [], recipes=lambda owner, parts: []
        )
        assert driver.driver(facts).status == "unknown"

    @pytest.mark.parametrize(
        ("version", "cards", "on_bus", "status"),
        [
            ("580.95.05", [fake.V100], [fake.ON_BUS], "ok"),
            ("535.104.05", [fake.V100], [fake.ON_BUS], "ok"),
            ("590.44.01", [], [fake.ON_BUS], "fail"),
            ("590.44.01", [H200], [PciCard("x", "2335", "nvidia")], "warn"),
        ],
    )
    def test_volta_needs_r580_or_older(self, version, cards, on_bus, status):
        """R590 drives no Volta: a failure with one in the machine, else a warning."""
        facts = fake.facts(gpus=gpus(version, cards), pci_cards=lambda: on_bus)
        assert driver.volta_driver(facts).status == status

    def test_volta_branch_is_nothing_to_newer_profiles(self):
        """An A100 has no last branch yet."""
        facts = fake.facts(profile=fake.profile(sms=(80,)))
        assert driver.volta_driver(facts).status == "skip"

    def test_no_driver_is_skipped_everywhere(self):
        """Without a driver there is no branch to judge."""
        facts = fake.facts(gpus=lambda: ABSENT)
        assert driver.driver(facts).status == "skip"
        assert driver.volta_driver(facts).status == "skip"

    @pytest.mark.parametrize(
        ("loaded", "on_bus", "status"),
        [
            (None, [], "skip"),
            (Module("570.1", "proprietary"), [fake.ON_BUS], "ok"),
            (Module("570.1", "open"), [fake.ON_BUS], "fail"),
            (Module("570.1", "open"), [], "ok"),
            (Module("", ""), [fake.ON_BUS], "unknown"),
        ],
    )
    def test_volta_needs_the_proprietary_module(self, loaded, on_bus, status):
        """The open module starts at Turing; with a V100 here it is a failure."""
        facts = fake.facts(module=lambda: loaded, pci_cards=lambda: on_bus)
        assert driver.module(facts).status == status

    @pytest.mark.parametrize(
        ("seen", "status"),
        [
            (fake.two_cards(6), "ok"),
            (fake.two_cards(0, "no"), "warn"),
            (fake.two_cards(None, "unknown"), "unknown"),
            (ABSENT, "skip"),
        ],
    )
    def test_links_between_two_cards(self, seen, status):
        """Links are good, PCIe alone is slow, and one card is no pair."""
        assert driver.nvlink(fake.facts(gpus=lambda: seen)).status == status
