"""The transcripts are compared: a wrong line is found."""

import doctest

import pytest

from tests.journeys import transcript


def test_the_examples_of_the_comparison_hold():
    assert doctest.testmod(transcript).failed == 0


@pytest.mark.parametrize(
    "wrong",
    ["$ trueline list\nno datasets, but some", "$ echo a\nb", ">>> 1 + 1\n3", ">>> 1 / 0", "$ false"],
)
def test_a_wrong_transcript_is_found(desk, wrong):
    with pytest.raises(AssertionError, match="prints"):
        desk.play(wrong)


def test_a_right_transcript_passes(desk):
    desk.play(
        """
$ echo a && false
a
[exit 1]
>>> for n in range(2):
...     print(n)
0
1
>>> 1 / 0
ZeroDivisionError: division by zero
"""
    )
