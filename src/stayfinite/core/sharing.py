"""How ranks write one checkpoint together, without a collective: pure decisions over what lies in the directory.

Each rank writes its share aside and leaves a report. The first rank gives the checkpoint its name when every report is
there and none tells of trouble; else it removes what was written. The others wait for one or the other.
"""

from __future__ import annotations

from enum import StrEnum


class Turn(StrEnum):
    """What a rank does next."""

    WAIT = "wait"
    FINISH = "finish"
    GIVE_UP = "give-up"


def first_rank(*, awaited: int, failed: bool, spent: bool) -> Turn:
    """The first rank's turn.

    Arguments:
        awaited: ranks without a report so far.
        failed: whether a share could not be written, its own or one that was reported.
        spent: whether its patience is.
    """
    if failed:
        return Turn.GIVE_UP
    if not awaited:
        return Turn.FINISH
    return Turn.GIVE_UP if spent else Turn.WAIT


def other_rank(*, aside: bool, named: bool, spent: bool) -> Turn:
    """Another rank's turn, once its report is written.

    Arguments:
        aside: whether the unfinished checkpoint is still there.
        named: whether the finished one is.
        spent: whether its patience is.
    """
    if named:
        return Turn.FINISH
    if not aside:
        return Turn.GIVE_UP
    return Turn.GIVE_UP if spent else Turn.WAIT
