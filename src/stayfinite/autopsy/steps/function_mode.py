"""Intercept torch functions that a program calls."""

from __future__ import annotations

from typing import Any

from torch.overrides import TorchFunctionMode


class FunctionChange(TorchFunctionMode):
    """Every torch function goes through ``call``."""

    def __init__(self) -> None:
        TorchFunctionMode.__init__(self)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function, or a replacement."""
        return func(*args, **kwargs)
