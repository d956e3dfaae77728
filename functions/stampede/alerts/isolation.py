"""How far the messages of a batch are isolated from each other when it is decoded."""

from enum import Enum


class Isolation(Enum):
    """What is done before a batch is decoded as one; each step costs more than the one before."""

    FAST = "fast"
    CHECKED = "checked"
    """Each message is checked by fastavro."""
    ALONE = "alone"
    """Each message is checked by fastavro and decoded alone."""
