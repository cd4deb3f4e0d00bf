"""Repeated launches of Triton kernels with little host overhead."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


class Launcher:
    """Launches kernels at every step with arguments of the same types, on one device.

    To find the matching build, Triton inspects every argument, which takes the host several times as long as the
    launch. Here it does so once per kernel and constants; later launches use the build directly. Arguments must
    therefore keep their types, and tensors must start at an allocation unless the kernel allows otherwise
    (``do_not_specialize``).
    """

    def __init__(self) -> None:
        self._builds: dict[tuple[object, ...], Any] = {}
        self._direct: bool | None = None
        """Whether a build can be launched directly; None until tried."""

    def __call__(self, kernel: Any, programs: int, *arguments: Any, warps: int = 4, **constants: Any) -> None:
        """Launch a kernel on the current device and stream.

        Arguments:
            kernel: a ``triton.jit`` function with its constants as the last parameters.
            constants: its constants, in order.
        """
        key = (id(kernel), warps, *constants.values())
        if self._direct is not False and (build := self._builds.get(key)) is not None:
            # With addresses instead of tensors, Triton does not query the driver for each.
            where = [each.data_ptr() if isinstance(each, Tensor) else each for each in arguments]
            try:
                build[(programs, 1, 1)](*where, *constants.values())
            except TypeError:
                # Older Triton versions omit the constants; nothing was launched.
                if self._direct:
                    raise
                self._direct = False
            else:
                self._direct = True
                return
        if len(arguments) + len(constants) != len(kernel.arg_names):
            # Not every Triton version checks the argument count.
            raise TypeError(f"{kernel.__name__} takes {', '.join(kernel.arg_names)}")
        # In the interpreter there is no build.
        self._builds[key] = kernel[(programs,)](*arguments, **constants, num_warps=warps)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Context in which kernels are launched on this device."""
    if device.type != "cuda" or device.index in (None, torch.cuda.current_device()):
        return nullcontext()
    return torch.cuda.device(device)
