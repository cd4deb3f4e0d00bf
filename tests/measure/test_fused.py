from importlib.util import find_spec

import pytest
import torch
from torch import nn

from stayfinite.measure.fused import SWITCH, Fused, fused_for, switched_off
from stayfinite.measure.gradients import measure_gradients
from stayfinite.measure.roster import take_roster

CPU = torch.device("cpu")


def training(dtype=torch.float32):
    model = nn.Linear(3, 2).to(dtype)
    model(torch.ones(1, 3, dtype=dtype)).sum().backward()
    return take_roster(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_on_the_cpu_torch_reads():
    assert fused_for(training()) is None


@pytest.mark.parametrize(("value", "off"), [("0", True), ("1", False), ("", False)])
def test_the_kernels_can_be_switched_off(monkeypatch, value, off):
    monkeypatch.setenv(SWITCH, value)
    assert switched_off() is off


def test_kernels_that_cannot_be_built_are_left_alone_from_then_on_and_torch_reads(monkeypatch):
    fused, roster = Fused(CPU), training()

    def no_compiler(*_):
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(fused._gradients, "read", no_compiler)
    measured = measure_gradients(roster, fused)
    assert measured.facts is None
    assert torch.equal(measured.norms, measure_gradients(roster).norms)
    assert fused.trouble == "RuntimeError: Failed to find C compiler"
    assert fused.watch(list(roster.parameters)) is None


def test_a_kernel_that_has_worked_and_fails_later_is_an_error(monkeypatch):
    fused, roster = Fused(CPU), training()
    fused._looked = True

    def out_of_memory(*_):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(fused._gradients, "read", out_of_memory)
    with pytest.raises(RuntimeError, match="out of memory"):
        measure_gradients(roster, fused)


class Wrapping(torch.Tensor):
    """Stands for a tensor whose numbers are elsewhere than it says."""


def test_what_only_wraps_other_tensors_is_never_read_by_its_address(monkeypatch):
    fused, roster = Fused(CPU), training()
    monkeypatch.setattr(fused, "look", lambda _: pytest.fail("read by its address"))
    for parameter in roster.parameters:
        parameter.grad = parameter.grad.as_subclass(Wrapping)
    assert torch.equal(measure_gradients(roster, fused).norms, measure_gradients(roster).norms)
    assert fused.watch([torch.ones(3).as_subclass(Wrapping)]) is None


def test_what_the_kernels_do_not_read_is_read_by_torch():
    fused, roster = Fused(CPU), training(torch.float64)
    measured = measure_gradients(roster, fused)
    assert measured.facts is None
    assert torch.equal(measured.norms, measure_gradients(roster).norms)
    assert not fused.trouble
    assert fused.watch(list(roster.parameters)) is None


@pytest.mark.skipif(find_spec("triton") is None or torch.cuda.is_available(), reason="needs Triton's interpreter")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("swap", [lambda data: data[:32], lambda data: data.view(torch.float16)[:64]])
def test_weights_that_were_replaced_where_they_are_are_measured_as_what_they_are_now(swap):
    parameter = nn.Parameter(torch.ones(64))
    roster = take_roster(nn.ParameterList([parameter]), torch.optim.SGD([parameter], lr=0.1))
    fused, whole = Fused(CPU), parameter.data
    for data in (whole, swap(whole)):
        parameter.grad = None
        parameter.data = data
        parameter.grad = torch.ones_like(data)
        measured = measure_gradients(roster, fused)
        movement = fused.watch([parameter])
        assert movement is not None
        whole[32:] += 100  # what no longer belongs to it
        moved = movement.ratios(measured.facts.table)[0, -1].item() > 0
        assert moved == (data is whole)
