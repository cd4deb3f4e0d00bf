"""Protocol for one checkpoint written by many ranks without a collective: pure decisions on the directory's content.

Each rank writes its share to a temporary directory and leaves a report. Rank 0 renames the checkpoint when all reports
are there without an error, otherwise it removes it. The other ranks wait for either.
"""

from __future__ import annotations

from enum import StrEnum


class Turn(StrEnum):
    """Next action of a rank."""

    WAIT = "wait"
    FINISH = "finish"
    GIVE_UP = "give-up"


def first_rank(*, awaited: int, failed: bool, spent: bool) -> Turn:
    """Next action of rank 0.

    Arguments:
        awaited: ranks without a report.
        failed: whether a share could not be written, on any rank.
        spent: whether the waiting time is over.
    """
    if failed:
        return Turn.GIVE_UP
    if not awaited:
        return Turn.FINISH
    return Turn.GIVE_UP if spent else Turn.WAIT


def other_rank(*, aside: bool, named: bool, spent: bool) -> Turn:
    """Next action of another rank after its report.

    Arguments:
        aside: whether the unfinished checkpoint still exists.
        named: whether the finished one exists.
        spent: whether the waiting time is over.
    """
    if named:
        return Turn.FINISH
    if not aside:
        return Turn.GIVE_UP
    return Turn.GIVE_UP if spent else Turn.WAIT
