# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Header copies with single declarations off."""

from __future__ import annotations

from pathlib import Path

from tools.rig.steps.shadow import shadow

_HEADER = """\
#if C23
/* Cosine of pi * X.  */
__MATHCALL_VEC (cospi,, (_Mdouble_ __x));
/* Sine.  */
__MATHCALL_VEC (sinpi,,
                (_Mdouble_ __x));
__MATHCALL (tanpi,, (_Mdouble_ __x));
#endif
"""


def body(text: str) -> list[str]:
    """Return the lines below the preamble."""
    rows = text.split("\n")
    return rows[next(i for i, r in enumerate(rows) if r.startswith("#line")) + 1 :]


def test_only_the_named_lines_change() -> None:
    """Every other line stays, with its number."""
    made = body(shadow(_HEADER, [3], Path("/usr/include/m.h"), ["cospi"]))
    changed = [
        n
        for n, (a, b) in enumerate(zip(_HEADER.split("\n"), made, strict=True), 1)
        if a != b
    ]
    assert changed == [3]


def test_a_declaration_over_two_lines_goes_whole() -> None:
    """Its first or its last line may be the one that the compiler names."""
    for line in (5, 6):
        made = body(shadow(_HEADER, [line], Path("m.h"), ["sinpi"]))
        assert made[4].startswith("/* off") and made[5].startswith("/* off")
        assert made[6] == "__MATHCALL (tanpi,, (_Mdouble_ __x));"


def test_messages_name_the_original_place() -> None:
    """Odd characters in the header's place are quoted for the preprocessor."""
    made = shadow(_HEADER, [], Path('/a "b"/m.h'), [])
    assert '#line 1 "/a \\"b\\"/m.h"\n' in made
    assert "#pragma GCC system_header" in made


def test_a_line_outside_the_header_changes_nothing() -> None:
    """A number that cannot be is ignored; the next probe then says so."""
    assert body(shadow(_HEADER, [99], Path("m.h"), [])) == _HEADER.split("\n")
