"""Launching Triton kernels again and again, at little cost to the host."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


class Launcher:
    """Launches kernels at every step with arguments of the same types, on one device.

    Triton looks at every argument of a launch to find the build of the kernel that fits, which takes the host several
    times as long as the launch itself. Here it does so once for each kernel and its constants; after that the build is
    launched directly. So arguments must keep their types, and tensors must begin where an allocation begins, unless
    the kernel says that it does not matter (``do_not_specialize``).
    """

    def __init__(self) -> None:
        self._builds: dict[tuple[object, ...], Any] = {}
        self._direct: bool | None = None
        """Whether a build can be launched directly; None before it was tried."""

    def __call__(self, kernel: Any, programs: int, *arguments: Any, warps: int = 4, **constants: Any) -> None:
        """Launch so many programs on the present device and stream.

        Arguments:
            kernel: a function under ``triton.jit``, its constants behind all other parameters.
            programs: how many.
            arguments: what it is given.
            warps: of each program.
            constants: its constants, in their order.
        """
        key = (id(kernel), warps, *constants.values())
        if self._direct is not False and (build := self._builds.get(key)) is not None:
            # Addresses in place of tensors spare Triton a question to the driver for each of them.
            where = [each.data_ptr() if isinstance(each, Tensor) else each for each in arguments]
            try:
                build[(programs, 1, 1)](*where, *constants.values())
            except TypeError:
                # Older versions of Triton leave the constants out; nothing was launched then.
                if self._direct:
                    raise
                self._direct = False
            else:
                self._direct = True
                return
        if len(arguments) + len(constants) != len(kernel.arg_names):
            # Not every version of Triton counts what a build is given.
            raise TypeError(f"{kernel.__name__} takes {', '.join(kernel.arg_names)}")
        # The interpreter builds nothing.
        self._builds[key] = kernel[(programs,)](*arguments, **constants, num_warps=warps)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Within, kernels are launched there."""
    if device.type != "cuda" or device.index in (None, torch.cuda.current_device()):
        return nullcontext()
    return torch.cuda.device(device)
