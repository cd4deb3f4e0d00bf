"""Check every n steps that replicated parameters are the same on all ranks."""

from stayfinite.core.finding import Finding
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.measure.mailbox import Mailbox
from stayfinite.measure.roster import SHOWN, Roster


class DesyncWatch:
    """Compares checksums across ranks without a sync; reports each parameter once.

    Arguments:
        every: steps between checks; 0 for none.
    """

    def __init__(self, ranks: Ranks, every: int) -> None:
        self._ranks = ranks
        self._every = every
        self._mail: Mailbox[tuple[int, tuple[str, ...]]] = Mailbox()
        self._reported: set[str] = set()

    def look(self, step: int, roster: Roster) -> None:
        """Start a check if one is due after this step; a collective then."""
        if not self._every or step % self._every:
            return
        if (differing := self._ranks.compare(roster)) is not None:
            self._mail.post((step, self._ranks.census(roster).names), differing)

    def collect(self, *, wait: bool = False) -> list[Finding]:
        """Findings of completed checks."""
        found = []
        for (step, names), flags in self._mail.collect(wait=wait):
            odd = [name for name, differs in zip(names, flags, strict=True) if differs]
            if set(odd) - self._reported:
                self._reported.update(odd)
                found.append(_finding(step, odd, len(names), self._ranks.world))
        return found


def _finding(step: int, odd: list[str], parameters: int, world: int) -> Finding:
    more = f" and {len(odd) - SHOWN} more" if len(odd) > SHOWN else ""
    return Finding(
        code="SF503", cause="rank-desync", severity="error", confidence=0.99, where=f"step {step}",
        title="replicated parameters differ between ranks",
        evidence=(f"{len(odd)} of {parameters} differ between {world} ranks: {', '.join(odd[:SHOWN])}{more}",),
        fix=(
            "stop and resume from an earlier checkpoint. Look for code that changes parameters on one rank only, "
            "different seeds, or a failing device"
        ),
    )  # fmt: skip
