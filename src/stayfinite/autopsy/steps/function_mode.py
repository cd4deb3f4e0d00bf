"""Changing the functions of torch that a program calls while it runs."""

from __future__ import annotations

from typing import Any

from torch.overrides import TorchFunctionMode


class FunctionChange(TorchFunctionMode):
    """Every function of torch goes through ``call``."""

    def __init__(self) -> None:
        TorchFunctionMode.__init__(self)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Hand the call on."""
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function, or something in its place."""
        return func(*args, **kwargs)
