"""Rank agreement: a protocol is a generator that real ranks or a simulator can run.

Clocks, memory and disks differ between ranks. To act alike, a protocol yields this rank's number and receives the
maximum over all ranks. Every rank must reach the same yields in the same order, even after a local failure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

Answer = TypeVar("Answer")

Agreement = Generator[int, int, Answer]


def settle(agreement: Agreement[Answer], highest: Callable[[int], int]) -> Answer:
    """Run a protocol to its end; ``highest`` is an all-reduce with max."""
    try:
        number = next(agreement)
        while True:
            number = agreement.send(highest(number))
    except StopIteration as ended:
        answer: Answer = ended.value
        return answer
