import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the code does."""
    return "asyncio"
