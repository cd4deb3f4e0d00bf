"""Several optimizers, or several schedules, as one."""

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, cast

from torch import nn
from torch.optim import Optimizer


class EngineOptimizers:
    """torch optimizers inside an engine, which steps them; the class is named after theirs.

    Deliberately no Optimizer: other users would get hooks of an optimizer that is stepped in parts.
    """

    def __init__(self, optimizers: Sequence[Optimizer], model: nn.Module) -> None:
        self._optimizers = list(optimizers)
        self.stands_for = [parameter for parameter in model.parameters() if parameter.requires_grad]
        """Trained parameters of the model; the optimizers may hold wider copies or shards of them."""

    @classmethod
    def of(cls, optimizers: Sequence[Optimizer], model: nn.Module) -> Optimizer:
        """Combine optimizers into one."""
        name = "+".join(dict.fromkeys(type(each).__name__ for each in optimizers))
        return cast(Optimizer, type(name, (cls,), {})(optimizers, model))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Live groups of all optimizers; between ZeRO-3 steps they hold no tensors."""
        return [group for each in self._optimizers for group in each.param_groups]

    @property
    def state(self) -> MutableMapping[Any, Any]:
        """Live state of all optimizers, by parameter."""
        return _States(self._optimizers)

    def step(self) -> None:
        for each in self._optimizers:
            each.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for each in self._optimizers:
            each.zero_grad(set_to_none)


class _States(MutableMapping[Any, Any]):
    """State lookup in the optimizer that holds the parameter; other keys are in the first."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._all = [each.state for each in optimizers]
        self._home = {id(p): each.state for each in optimizers for group in each.param_groups for p in group["params"]}

    def _of(self, key: Any) -> Any:
        return self._home.get(id(key), self._all[0])

    def __getitem__(self, key: Any) -> Any:
        found = self._of(key)
        # Reading a torch optimizer's state directly would create an empty entry.
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


class Schedules:
    """Schedulers that a framework steps."""

    def __init__(self, schedulers: Sequence[Any]) -> None:
        self._schedulers = list(schedulers)

    @classmethod
    def of(cls, schedulers: Sequence[Any]) -> Any:
        """None for none, a single one itself, otherwise a combination."""
        return cls(schedulers) if len(schedulers) > 1 else next(iter(schedulers), None)

    def state_dict(self) -> dict[str, Any]:
        return {str(number): each.state_dict() for number, each in enumerate(self._schedulers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for number, each in enumerate(self._schedulers):
            each.load_state_dict(state[str(number)])
