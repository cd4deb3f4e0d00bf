"""Detect a reference model that is the policy, shares weights with it, or is trained, without a forward pass."""

from typing import Any

from torch import nn

__all__ = ["Reference"]


class Reference:
    """Checks a reference model, without a device sync.

    Examples:
        >>> reference = rl.Reference(model, model, optimizer)
        >>> reference.fault()  # before the first step; "" where nothing is wrong
        'the reference is the policy itself'
        >>> reference.moved()  # any time later: names of weights that were written to
        []

    Arguments:
        policy: the trained model.
        reference: its reference; `get_peft_model(base)` changes ``base``, so both would share the adapter.
        optimizer: the training's optimizer, if it exists already.
    """

    def __init__(self, policy: nn.Module, reference: nn.Module, optimizer: Any = None) -> None:
        self._policy, self._reference, self._optimizer = policy, reference, optimizer
        self._weights = list(reference.named_parameters())
        self._written = [each._version for _, each in self._weights]

    def fault(self) -> str:
        """What is wrong, in one sentence; empty if nothing is."""
        trained = {id(each): name for name, each in self._policy.named_parameters() if each.requires_grad}
        own = self._weights
        if self._reference is self._policy:
            return "the reference is the policy itself"
        if shared := [name for name, each in own if id(each) in trained]:
            adapter = sum("lora_" in name for name in shared)
            what = f"the adapter ({adapter} weights)" if adapter == len(shared) else f"{len(shared)} trained weights"
            return f"the reference shares {what} with the policy, first {shared[0]}"
        groups = () if self._optimizer is None else self._optimizer.param_groups
        given = {id(each) for group in groups for each in group["params"]}
        if trains := [name for name, each in own if id(each) in given]:
            return f"the optimizer trains {len(trains)} weights of the reference, first {trains[0]}"
        return ""

    def moved(self) -> list[str]:
        """Names of reference weights written to since construction: by an optimizer, an average, a load."""
        return [
            name for (name, each), written in zip(self._weights, self._written, strict=True) if each._version != written
        ]
