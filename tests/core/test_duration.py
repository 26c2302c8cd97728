import pytest

from rlcli.core.duration import seconds


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (90, "90s"),
        (2_700, "45m"),
        (7_200, "2h"),
        (172_800, "2d"),
        (5_400, "1h30m"),
        (5_400, " 1h30m "),
        (93_784, "1d2h3m4s"),
        (86_401, "1d1s"),
        (3_600, "60m"),
        (5, "0h0m5s"),
        (60, "01m"),
    ],
)
def test_spans_are_the_sum_of_their_parts(expected, text):
    assert expected == seconds(text)
    assert float is type(seconds(text))


@pytest.mark.parametrize(
    "text",
    ["", " ", "90", "1.5h", "-1h", "1h 30m", "30m1h", "1h1h", "h", "1x", "1H", "0s", "0h0m", "1:30", "ever", "1h30"],
)
def test_anything_else_is_refused_with_what_was_given_and_examples(text):
    with pytest.raises(ValueError, match=r"is no span of time such as 1h30m, 45m, 90s or 2d$") as error:
        seconds(text)

    assert str(error.value).startswith(repr(text))
