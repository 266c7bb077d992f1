"""What the tests of the forge share: one thread for torch, which would otherwise take every core for itself."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Leave the other cores to others."""
    torch.set_num_threads(1)
