"""Tensors through the staging ring."""
from dataclasses import dataclass


@dataclass
class Stats:
    """x"""


def load(*a, **k):
    raise NotImplementedError
