# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The compatibility tables and the questions that are put to them."""

import json

import pytest

from tools.rig.host import compat

GLIBC_241 = ("cospi", "cospif", "sinpi", "sinpif")
GLIBC_242 = ("cospi", "cospif", "rsqrt", "rsqrtf", "sinpi", "sinpif")


class TestToolkits:
    """What the table says about CUDA releases."""

    def test_newest_for_volta_is_12_9(self):
        """12.9 is the last release that knows sm_70, and 12.7 never came out."""
        rows = compat.tables()["A_cuda"]["toolkits"]
        releases = [row["cuda"] for row in rows if 70 in row.get("sm", ())]
        assert releases[0] == "11.8"
        assert releases[-1] == "12.9"
        assert "12.7" not in releases

    @pytest.mark.parametrize("release", ["12.4", "12.4.131"])
    def test_patch_level_is_ignored(self, release):
        """A row is found by major and minor version."""
        assert compat.toolkit_row(release)["cuda"] == "12.4"

    @pytest.mark.parametrize("release", ["12.7", "99.0", "", "nonsense"])
    def test_unknown_release_has_no_row(self, release):
        """What is not in the table is None and not a guess."""
        assert compat.toolkit_row(release) is None
        assert compat.gcc_max(release) is None
        assert compat.clang_max(release) is None
        assert compat.driver_min(release) is None
        assert compat.driver_bundled(release) is None

    @pytest.mark.parametrize(
        ("release", "gcc", "clang"),
        [("11.8", 11, 14), ("12.4", 13, 17), ("12.9", 14, 19)],
    )
    def test_compiler_ceilings(self, release, gcc, clang):
        """The ceilings are those of host_config.h."""
        assert compat.gcc_max(release) == gcc
        assert compat.clang_max(release) == clang

    def test_driver_minimum_is_the_same_within_a_major_version(self):
        """Every 12.x runs from 525.60.13 on, every 11.x from 450.80.02."""
        minimums = {compat.driver_min(f"12.{n}") for n in (0, 4, 8, 9)}
        assert minimums == {"525.60.13"}
        assert compat.driver_min("11.8") == "450.80.02"

    def test_bundled_driver_is_newer_than_the_minimum(self):
        """The bundled driver is the first that also compiles that release's PTX."""
        assert compat.driver_bundled("12.8") == "570.26"

    def test_a_release_without_a_bundled_driver_says_nothing(self):
        """13.4 ships no Linux driver."""
        assert compat.driver_bundled("13.4") is None


class TestGlibc:
    """Declarations that glibc's and a toolkit's headers fight over."""

    @pytest.mark.parametrize("release", ["11.8", "12.0", "12.4", "12.8", "12.9"])
    def test_no_volta_toolkit_is_clean_on_2_41(self, release):
        """12.9 does not fix glibc 2.41: the four functions clash in every 12.x."""
        assert compat.glibc_clashes("2.41", release) == GLIBC_241

    @pytest.mark.parametrize("glibc", ["2.42", "2.43", "2.50"])
    def test_rsqrt_joins_from_2_42(self, glibc):
        """From glibc 2.42 on two more names clash."""
        assert compat.glibc_clashes(glibc, "12.8") == GLIBC_242

    @pytest.mark.parametrize(
        ("glibc", "release", "names"),
        [
            ("2.36", "12.9", ()),
            ("2.40", "11.8", ()),
            ("2.41", "13.0", ()),
            ("2.42", "13.1", ("rsqrt", "rsqrtf")),
            ("2.43", "13.2", ()),
        ],
    )
    def test_clean_and_half_clean_pairs(self, glibc, release, names):
        """Each clash ends with the release that fixed it."""
        assert compat.glibc_clashes(glibc, release) == names

    @pytest.mark.parametrize(("glibc", "release"), [("", "12.8"), ("2.41", "")])
    def test_unknown_version_clashes_with_nothing(self, glibc, release):
        """Without both versions there is no statement."""
        assert compat.glibc_clashes(glibc, release) == ()


class TestTorch:
    """Which wheels hold code for which card."""

    @pytest.mark.parametrize("torch", ["2.8.0", "2.9.1", "2.10.0"])
    def test_cu128_has_volta_only_in_three_releases(self, torch):
        """cu128 holds sm_70 in 2.8, 2.9 and 2.10."""
        assert compat.torch_has_sm(torch, "cu128", 70) is True

    @pytest.mark.parametrize("torch", ["2.7.1", "2.11.0"])
    def test_cu128_lacks_volta_before_and_after(self, torch):
        """cu128 of 2.7 and of 2.11 starts at sm_75."""
        assert compat.torch_has_sm(torch, "cu128", 70) is False

    def test_cu126_is_the_last_with_volta(self):
        """2.14 with cu126 is the last official wheel with sm_70; 2.15 has none."""
        assert compat.torch_variants_with("2.14.1", 70) == ["cu126"]
        assert compat.torch_variants_with("2.15.0", 70) == []
        assert compat.torch_has_sm("2.15.0", "cu132", 70) is False

    def test_code_of_an_older_minor_runs(self):
        """8.6 code serves an 8.9 card; no wheel lists 8.9."""
        assert compat.torch_has_sm("2.10.0", "cu128", 89) is True

    def test_ptx_serves_newer_cards(self):
        """12.0+PTX can be compiled for a card that is newer than the wheel."""
        assert compat.torch_has_sm("2.10.0", "cu130", 121) is True
        assert compat.torch_has_sm("2.9.0", "cu129", 130) is True

    def test_inferred_rows_answer_for_volta_alone(self):
        """A row without a list of architectures says what is established, no more."""
        assert compat.torch_has_sm("2.6.0", "cu124", 70) is True
        assert compat.torch_has_sm("2.6.0", "cu124", 80) is None

    @pytest.mark.parametrize(
        ("torch", "variant"), [("2.10.0", "cu999"), ("99.0", "cu128")]
    )
    def test_unknown_wheel_is_none(self, torch, variant):
        """A wheel that is not in the table is unknown."""
        assert compat.torch_has_sm(torch, variant, 70) is None


class TestRest:
    """Volta's bounds, variables, packages."""

    def test_volta_bounds(self):
        """R580, cuDNN below 9.11 and the proprietary module bound a Volta card."""
        volta = compat.volta()
        assert volta["last_driver_branch_number"] == 580
        assert volta["first_cudnn_without"] == "9.11"
        assert volta["kernel_module_flavour"] == "proprietary"
        assert compat.is_volta(70)
        assert not compat.is_volta(75)

    def test_obsolete_variables_name_a_replacement(self):
        """Each dead variable comes with what to use instead."""
        assert all(row["instead"] for row in compat.obsolete_variables().values())

    @pytest.mark.parametrize(
        ("what", "family", "name"),
        [("g++", "rhel", "gcc-c++"), ("g++", "debian", "g++"), ("g++", "", "g++")],
    )
    def test_package_names_by_family(self, what, family, name):
        """An unknown family gets Debian's name."""
        assert compat.package(what, family) == name

    def test_unknown_package_keeps_its_name(self):
        """A program that is not in the table is called by its own name."""
        assert compat.package("frobnicate", "debian") == "frobnicate"

    @pytest.mark.parametrize(
        ("text", "numbers"),
        [("12.4.131", (12, 4, 131)), (" 580.65 ", (580, 65)), ("x", ()), ("", ())],
    )
    def test_version_reads_leading_numbers(self, text, numbers):
        """Text without a number sorts below every version."""
        assert compat.version(text) == numbers


def test_every_row_names_its_source():
    """A fact without a source does not belong in the tables."""
    data = json.loads(compat.TABLES.read_text(encoding="utf-8"))
    cuda = data["A_cuda"]
    assert all(row["sources"] for row in cuda["toolkits"])
    assert all(row["source"] for row in data["B_pytorch_wheels"])
    assert all(row["source"] for row in data["B_vllm"])
    assert cuda["volta"]["source"]
    assert cuda["driver_rules"]["source"]


def test_sm_70_flag_agrees_with_the_list_of_architectures():
    """The two ways in which the table says it never differ."""
    for row in compat.tables()["A_cuda"]["toolkits"]:
        if row["released"]:
            assert row["sm_70"] == (70 in row["sm"])
    for row in compat.tables()["B_pytorch_wheels"]:
        if row["arch_list"]:
            assert row["sm_70"] == ("7.0" in row["arch_list"].split())
