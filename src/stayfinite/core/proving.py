"""Count the steps that prove a snapshot to be good."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Proof:
    """Evidence for a candidate snapshot."""

    step: int | None = None
    """Last step that the candidate contains; None without a candidate."""

    accepted: int = 0
    """Later steps accepted since the last refusal."""

    refusals: int = 0


NO_CANDIDATE = Proof()


def accept(proof: Proof, step: int) -> Proof:
    """Count an accepted step; steps up to the candidate's own prove nothing."""
    if proof.step is None or step <= proof.step:
        return proof
    return replace(proof, accepted=proof.accepted + 1)


def refuse(proof: Proof, step: int, most: int) -> Proof:
    """Restart the proof after a refused step; drop the candidate at the ``most``-th refusal."""
    if proof.step is None or step <= proof.step:
        return proof
    refusals = proof.refusals + 1
    return NO_CANDIDATE if refusals >= most else replace(proof, accepted=0, refusals=refusals)
