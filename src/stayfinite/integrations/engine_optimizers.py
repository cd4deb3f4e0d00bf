"""The optimizers of an engine as one, so that a guard sees all that they hold."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, cast

from torch import nn
from torch.optim import Optimizer


class EngineOptimizers:
    """torch's optimizers inside of an engine, which alone steps them; its class is named after theirs."""

    def __init__(self, optimizers: Sequence[Optimizer], model: nn.Module) -> None:
        self._optimizers = list(optimizers)
        self.stands_for = [parameter for parameter in model.parameters() if parameter.requires_grad]
        """What is trained; the parameters inside may be an engine's own: wider copies of these, or shards of them."""

    @classmethod
    def of(cls, optimizers: Sequence[Optimizer], model: nn.Module) -> Optimizer:
        """All of them as one, which a guard takes for an optimizer."""
        name = "+".join(dict.fromkeys(type(each).__name__ for each in optimizers))
        return cast(Optimizer, type(name, (cls,), {})(optimizers, model))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The living groups of all."""
        return [group for each in self._optimizers for group in each.param_groups]

    @property
    def state(self) -> MutableMapping[Any, Any]:
        """The living state of all, by parameter."""
        return _States(self._optimizers)

    def step(self) -> None:
        """Step each."""
        for each in self._optimizers:
            each.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of each."""
        for each in self._optimizers:
            each.zero_grad(set_to_none)


class _States(MutableMapping[Any, Any]):
    """Each parameter's state in the optimizer that holds the parameter; other keys in the first."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._all = [each.state for each in optimizers]
        self._home = {id(p): each.state for each in optimizers for group in each.param_groups for p in group["params"]}

    def _of(self, key: Any) -> Any:
        return self._home.get(id(key), self._all[0])

    def __getitem__(self, key: Any) -> Any:
        found = self._of(key)
        # The state of a torch optimizer would make an empty entry.
        if key not in found:
            raise KeyError(key)
        return found[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._of(key)[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._of(key)[key]

    def __iter__(self) -> Iterator[Any]:
        return (key for each in self._all for key in each)

    def __len__(self) -> int:
        return sum(map(len, self._all))
