"""Freedoms that many architectures share, put together from the paths of their layers."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from stayfinite.precision.surgery.freedoms import Freedom

LOGITS = "the loss depends on the scale of the logits"
HOMOGENEOUS = frozenset({"relu", "leaky_relu", "linear"})
"""Activations with f(a x) = a f(x) for a > 0."""


class Parts:
    """Looks up which parameters there are, so that layers with and without biases read alike."""

    def __init__(self, model: nn.Module) -> None:
        self._names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        # A tied weight has several names and is multiplied once, under the first.
        first: dict[int, str] = {}
        self._first: dict[str, str] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self._first[name] = first.setdefault(id(parameter), name)

    def name(self, parameter: str) -> str:
        """The first name of a parameter that may have several."""
        return self._first[parameter]

    def whole(self, paths: Iterable[str], power: int) -> dict[str, int]:
        """Weights and biases: all that the layer gives out takes the power."""
        return {
            self.name(name): power
            for path in paths
            for name in (f"{path}.weight", f"{path}.bias")
            if name in self._names
        }

    def weights(self, paths: Iterable[str], power: int) -> dict[str, int]:
        """Weights alone: they undo what their input has taken."""
        return {self.name(f"{path}.weight"): power for path in paths}

    def tied(self, one: str, other: str) -> bool:
        """Whether two parameters are one."""
        return one in self._first and other in self._first and self._first[one] == self._first[other]

    def pair(self, name: str, first: str, second: str, between: Iterable[str] = ()) -> Freedom:
        """Two layers with nothing but homogeneous operators between them: the first times f, the second over f."""
        seen = {f"{first}:out": 1, f"{second}:in": 1} | dict.fromkeys(between, 1)
        return Freedom(name=name, parameters=self.whole([first], 1) | self.weights([second], -1), activations=seen)

    def scores(self, name: str, query: str, key: str) -> Freedom:
        """Queries times f, keys over f: attention sees their product alone."""
        return Freedom(
            name=name,
            parameters=self.whole([query], 1) | self.whole([key], -1),
            activations={f"{query}:out": 1, f"{key}:out": -1},
        )

    def norm_output(self, norm: str, readers: Iterable[str]) -> Freedom:
        """A norm's weight times f, the layers that read its output over f."""
        readers = list(readers)
        seen = {f"{norm}:out": 1} | {f"{reader}:in": 1 for reader in readers}
        return Freedom(
            name=f"{norm} output", parameters=self.whole([norm], 1) | self.weights(readers, -1), activations=seen
        )
