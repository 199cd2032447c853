# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Numbers that people type, and what they are told of wrong ones."""

from __future__ import annotations

import pytest

from tools.rig.base.errors import UsageError
from tools.rig.serve import amounts, ports
from tools.rig.steps import capacity


def test_numbers() -> None:
    """A number within its bounds is one, however it is written."""
    assert amounts.whole("tp", "2", 1, 9) == 2
    assert amounts.whole("lines", "0", 0, 9) == 0
    assert amounts.number("memory", "15.5", 99) == 15.5


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("x", "--n x is not a whole number above 0"),
        ("nan", "--n nan is not a whole number above 0"),
        ("-1", "--n -1 is not a whole number above 0"),
        ("0", "--n 0 is not a whole number above 0"),
        ("1.5", "--n 1.5 is not a whole number above 0"),
        ("1e300", "--n 1e300 is too large: 1,000,000 is the most"),
        ("inf", "--n inf is too large: 1,000,000 is the most"),
        ("9" * 21, f"--n {'9' * 21} is too large: 1,000,000 is the most"),
        ("9" * 5000, f"--n {'9' * 197}... is too large: 1,000,000 is the most"),
    ],
)
def test_what_is_wrong(word: str, what: str) -> None:
    """What is said is what is wrong, and no number is too long to be looked at."""
    with pytest.raises(UsageError) as told:
        amounts.whole("n", word, 1, 1_000_000, hint="--n 1")
    assert told.value.what == what
    assert told.value.hint == "--n 1"


@pytest.mark.parametrize("word", ["x", "nan", "-1", "-inf", ""])
def test_no_number(word: str) -> None:
    """What is none, or below 0, is told as that."""
    with pytest.raises(UsageError, match="is not a number from 0 on"):
        amounts.number("n", word, 9)


def test_bounds_of_capacity() -> None:
    """A number that is too large is not said to be none."""
    for flag in ("memory", "max_len"):
        with pytest.raises(UsageError, match="is too large: 1,073,741,823"):
            capacity.options_for(**{"memory": "16", flag: "9" * 30})
    with pytest.raises(UsageError, match="--utilisation 0 is not a number above 0"):
        capacity.options_for(memory="16", utilisation="0")


def test_a_port_with_too_many_digits() -> None:
    """A number that Python would not convert is no port either."""
    with pytest.raises(UsageError, match="is no port"):
        ports.number("port", "9" * 5000)
