"""A kernel is looked up once and launched directly afterwards; with the real Triton: test_one_pass_on_cuda.py."""

import pytest
import torch

from stayfinite.measure.launching import Launcher


class Build:
    """What Triton returns of a launch: launched by its grid, with all arguments in a row."""

    def __init__(self, arguments):
        self.arguments, self.launches = arguments, []

    def __getitem__(self, grid):
        def launch(*arguments):
            if len(arguments) != self.arguments:
                raise TypeError(f"function takes exactly {self.arguments} arguments ({len(arguments)} given)")
            self.launches.append((grid, arguments))

        return launch


class Kernel:
    """As a function under triton.jit; each set of constants has a build of its own."""

    __name__ = "kernel"

    def __init__(self, arguments, *names):
        self.arguments, self.arg_names, self.builds, self.calls = arguments, names, {}, []

    def __getitem__(self, grid):
        def launch(*arguments, num_warps, **constants):
            self.calls.append((grid, arguments, num_warps, constants))
            return self.builds.setdefault((num_warps, *constants.values()), Build(self.arguments))

        return launch


def test_triton_looks_at_the_arguments_of_the_first_launch_only():
    kernel, launch, tensor = Kernel(4, "a", "b", "WIDTH", "COLUMNS"), Launcher(), torch.zeros(3)
    for programs in (5, 6, 7):
        launch(kernel, programs, tensor, 9, WIDTH=64, COLUMNS=5, warps=8)
    assert kernel.calls == [((5,), (tensor, 9), 8, {"WIDTH": 64, "COLUMNS": 5})]
    (build,) = kernel.builds.values()
    assert build.launches == [((n, 1, 1), (tensor.data_ptr(), 9, 64, 5)) for n in (6, 7)]


def test_other_constants_are_another_build():
    kernel, launch = Kernel(2, "a", "WIDTH"), Launcher()
    for width in (64, 128, 64, 128):
        launch(kernel, 1, 7, WIDTH=width)
    assert [constants for *_, constants in kernel.calls] == [{"WIDTH": 64}, {"WIDTH": 128}]
    assert [len(build.launches) for build in kernel.builds.values()] == [1, 1]


def test_where_a_build_takes_other_arguments_triton_launches_every_time():
    kernel, launch = Kernel(1, "a", "WIDTH"), Launcher()
    for _ in range(3):
        launch(kernel, 2, 7, WIDTH=64)
    assert len(kernel.calls) == 3
    assert launch._direct is False


def test_a_type_error_of_a_launch_that_has_worked_is_an_error_and_nothing_is_launched_again():
    kernel, launch = Kernel(2, "a", "WIDTH"), Launcher()
    for _ in range(2):
        launch(kernel, 2, 7, WIDTH=64)
    (build,) = kernel.builds.values()
    build.arguments = 0  # as a hook of somebody's that fails
    with pytest.raises(TypeError, match="exactly 0"):
        launch(kernel, 2, 7, WIDTH=64)
    assert len(kernel.calls) == len(build.launches) == 1


def test_a_kernel_that_is_given_too_little_is_refused():
    with pytest.raises(TypeError, match="kernel takes a, b, WIDTH"):
        Launcher()(Kernel(3, "a", "b", "WIDTH"), 1, 7, WIDTH=64)


def test_in_the_interpreter_where_there_is_no_build_triton_launches_every_time():
    kernel, launch = Kernel(2, "a", "WIDTH"), Launcher()
    kernel.builds[4, 64] = None
    for _ in range(3):
        launch(kernel, 2, 7, WIDTH=64)
    assert len(kernel.calls) == 3
    assert launch._direct is None
