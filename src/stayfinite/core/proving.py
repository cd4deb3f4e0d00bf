"""When a snapshot has proved itself: pure counting over the steps that came after it."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of a candidate."""

    step: int | None = None
    """The last step that it contains; None while there is no candidate."""

    accepted: int = 0
    """Later steps that were accepted since the last refusal."""

    refusals: int = 0


NO_CANDIDATE = Proof()


def accept(proof: Proof, step: int) -> Proof:
    """A step was accepted; steps up to the candidate's own prove nothing about it."""
    if proof.step is None or step <= proof.step:
        return proof
    return replace(proof, accepted=proof.accepted + 1)


def refuse(proof: Proof, step: int, most: int) -> Proof:
    """A step was refused: the candidate has to prove itself anew, and goes at the ``most``-th refusal."""
    if proof.step is None or step <= proof.step:
        return proof
    refusals = proof.refusals + 1
    return NO_CANDIDATE if refusals >= most else replace(proof, accepted=0, refusals=refusals)
