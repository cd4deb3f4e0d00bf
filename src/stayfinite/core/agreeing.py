"""Several ranks, one answer: a protocol is written once and run by real ranks or by a simulator.

What depends on a clock, on memory or on a disk differs from rank to rank. Where ranks have to act alike on it, the
protocol yields this rank's number and is sent the highest of all ranks'. A protocol knows nothing of processes; every
rank must come to the same yields in the same order, whatever happened to it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

Answer = TypeVar("Answer")

Agreement = Generator[int, int, Answer]


def settle(agreement: Agreement[Answer], highest: Callable[[int], int]) -> Answer:
    """Run a protocol to its end; ``highest`` asks all ranks."""
    try:
        number = next(agreement)
        while True:
            number = agreement.send(highest(number))
    except StopIteration as ended:
        answer: Answer = ended.value
        return answer
