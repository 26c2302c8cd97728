"""A table of values worked out by hand must hold, and must be able to fail."""

import pytest
import torch


def assert_table(expected, actual, rtol=1e-12):
    """Compares a float64 tensor or array with literals, then demands that literals 1 % off are refused.

    Zeros must be zeros exactly. ``rtol`` is for what went through float32 on its way.
    """
    actual = torch.as_tensor(actual)
    assert actual.dtype == torch.float64
    table = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual, table, rtol=rtol, atol=0.0)
    assert table.ne(0).any(), "a table of zeros cannot fail"
    with pytest.raises(AssertionError):
        torch.testing.assert_close(actual, 1.01 * table, rtol=rtol, atol=0.0)
