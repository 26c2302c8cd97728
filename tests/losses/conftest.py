"""A value table must hold to 1e-12 and must be able to fail."""

import pytest
import torch

RTOL = 1e-12


def _holds(expected, actual):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=torch.float64), rtol=RTOL, atol=0.0)


@pytest.fixture
def assert_table():
    """Compares a float64 tensor with literals, then demands that literals 1 % off are refused."""

    def compare(expected, actual):
        assert actual.dtype == torch.float64
        _holds(expected, actual)
        nudged = torch.as_tensor(expected, dtype=torch.float64) * 1.01
        assert nudged.ne(0).any(), "a table of zeros cannot fail"
        with pytest.raises(AssertionError):
            _holds(nudged, actual)

    return compare
