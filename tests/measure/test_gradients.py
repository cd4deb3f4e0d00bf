import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from stayfinite.measure.gradients import clip_gradients, measure_gradients
from stayfinite.measure.roster import take_roster

SHAPES = {
    "one": [(3,)],
    "layer": [(64, 32), (64,)],
    "scalar and empty": [(), (0,), (5,), (0, 3)],
    "many": [(7, 11, 3), (1000,), (1,), (33, 5), (257,), (12, 12, 2, 2)],
}


def model_with(*gradients):
    """A model whose parameters have these gradients, and its roster."""
    model = nn.ParameterList(nn.Parameter(torch.zeros_like(grad)) for grad in gradients)
    for parameter, grad in zip(model, gradients, strict=True):
        parameter.grad = grad.clone()
    return model, roster_of(model)


def roster_of(model):
    return take_roster(model, torch.optim.SGD(model.parameters(), lr=0.1))


def random_gradients(shapes, scale):
    generator = torch.Generator().manual_seed(0)
    return [scale * torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("max_norm", [1.0, 1e-3, 1e9])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e12])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_norm_and_clip_are_those_of_torch_to_the_last_bit(shapes, scale, max_norm):
    model, roster = model_with(*random_gradients(shapes, scale))
    twin = copy.deepcopy(model)
    for parameter, other in zip(model, twin, strict=True):
        other.grad = parameter.grad.clone()
    measured = measure_gradients(roster)
    clip_gradients(measured, max_norm)
    assert torch.equal(measured.total, clip_grad_norm_(twin.parameters(), max_norm))
    for parameter, other in zip(model, twin, strict=True):
        assert torch.equal(parameter.grad, other.grad)


def test_parameters_without_a_gradient_are_left_out():
    model, roster = model_with(torch.tensor([3.0]), torch.tensor([5.0]), torch.tensor([4.0]))
    model[1].grad = None
    measured = measure_gradients(roster)
    assert measured.indices == (0, 2)
    assert measured.norms.tolist() == [3.0, 4.0]
    assert measured.total.item() == clip_grad_norm_(model.parameters(), 1.0).item() == 5.0
    clip_gradients(measured, 2.5)
    assert model[1].grad is None


def test_without_any_gradient_the_norm_is_zero_and_clipping_does_nothing():
    model, roster = model_with(torch.ones(2))
    model[0].grad = None
    measured = measure_gradients(roster)
    assert (measured.indices, measured.norms.shape, measured.total.item()) == ((), (0,), 0.0)
    clip_gradients(measured, 1.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_half_precision_gradients_do_not_overflow_in_the_norm(dtype):
    model, roster = model_with(torch.full((100,), 3e4, dtype=dtype))
    measured = measure_gradients(roster)
    assert measured.total.dtype is torch.float32
    assert measured.total.item() == pytest.approx(10 * model[0].grad[0].item())
    clip_gradients(measured, 1.0)
    assert model[0].grad.float().norm().item() == pytest.approx(1.0, rel=5e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_element_shows_in_its_own_norm_and_in_the_total_alone(bad):
    grad = torch.ones(1000)
    grad[617] = bad
    measured = measure_gradients(model_with(torch.ones(3), grad, torch.ones(3))[1])
    assert measured.norms.isfinite().tolist() == [True, False, True]
    assert not measured.total.isfinite()


def test_several_dtypes_in_one_model_are_measured_and_clipped_together():
    dtypes = (torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.float32)
    model, roster = model_with(*(torch.full((4,), 2.0, dtype=dtype) for dtype in dtypes))
    measured = measure_gradients(roster)
    assert sorted(measured.indices) == [0, 1, 2, 3, 4]
    assert measured.norms.tolist() == [4.0] * 5
    assert measured.total.item() == pytest.approx(80**0.5)
    clip_gradients(measured, 80**0.5 / 2)
    for parameter, dtype in zip(model, dtypes, strict=True):
        assert parameter.grad.dtype is dtype
        assert parameter.grad.tolist() == pytest.approx([1.0] * 4, rel=1e-2)


def test_rows_of_the_norms_belong_to_the_parameters_they_are_said_to():
    gradients = [torch.full((1,), float(i), dtype=torch.float64 if i % 2 else torch.float32) for i in range(6)]
    measured = measure_gradients(model_with(*gradients)[1])
    assert measured.norms.tolist() == [float(index) for index in measured.indices]


def test_the_norm_of_mixed_dtypes_is_that_of_torch_to_the_last_bit():
    kinds = (torch.complex64, torch.float32, torch.float64)
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        gradients = [torch.randn(5, dtype=kinds[(seed + i) % 3], generator=generator) for i in range(7)]
        model, roster = model_with(*gradients)
        measured = measure_gradients(roster)
        assert measured.norms.tolist() == [gradients[index].norm().item() for index in measured.indices]
        assert measured.total.item() == torch.nn.utils.get_total_norm([p.grad for p in model]).item()


def embedding_gradients(sparse):
    embedding = nn.Embedding(10, 4, sparse=sparse)
    weights = torch.arange(12.0).reshape(3, 4)
    (embedding(torch.tensor([1, 1, 7])) * weights).sum().backward()
    return embedding, roster_of(embedding)


def test_rows_that_occur_twice_in_a_sparse_gradient_add_up():
    (sparse, sparse_roster), (dense, dense_roster) = embedding_gradients(True), embedding_gradients(False)
    measured, expected = measure_gradients(sparse_roster), measure_gradients(dense_roster)
    assert measured.total.item() == pytest.approx(expected.total.item())
    assert torch.equal(sparse.weight.grad.to_dense(), dense.weight.grad)
    # Added up for the norm alone: an optimizer that is given the sum ends in other bits than without a guard.
    assert not sparse.weight.grad.is_coalesced()


def test_a_sparse_gradient_is_clipped_and_stays_sparse():
    (sparse, sparse_roster), (dense, dense_roster) = embedding_gradients(True), embedding_gradients(False)
    clip_gradients(measure_gradients(sparse_roster), 1.0)
    clip_gradients(measure_gradients(dense_roster), 1.0)
    assert sparse.weight.grad.is_sparse
    torch.testing.assert_close(sparse.weight.grad.to_dense(), dense.weight.grad)


def test_measuring_changes_no_gradient():
    gradients = random_gradients(SHAPES["many"], 1.0)
    model, roster = model_with(*gradients)
    measure_gradients(roster)
    assert all(torch.equal(parameter.grad, grad) for parameter, grad in zip(model, gradients, strict=True))
