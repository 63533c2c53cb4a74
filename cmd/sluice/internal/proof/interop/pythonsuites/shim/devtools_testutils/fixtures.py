"""A pytest plugin with the fixtures that the Azure SDK's own plugin has."""

import pytest


@pytest.fixture(scope="session")
def test_proxy():
    pass
