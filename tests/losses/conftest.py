"""The check of value tables, see `tests.tables`."""

import pytest

from tests import tables


@pytest.fixture
def assert_table():
    """Compares with literals, and demands that it could fail."""
    return tables.assert_table
