import math

import pytest
import torch
from torch import nn

from stayfinite.measure.gradients import clip_gradients, measure_gradients
from stayfinite.measure.movement import SUBSET
from stayfinite.measure.roster import take_roster
from stayfinite.measure.sample import FIELDS, Sampler


class Bench:
    """Parameters with known weights and gradients, and a plain SGD over them."""

    def __init__(self, *weights_and_gradients, lr=0.1):
        self.model = nn.ParameterList(nn.Parameter(weight) for weight, _ in weights_and_gradients)
        for parameter, (_, grad) in zip(self.model, weights_and_gradients, strict=True):
            parameter.grad = grad
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.measured = measure_gradients(take_roster(self.model, self.optimizer))
        self.sampler = Sampler(take_roster(self.model, self.optimizer), 5, self.measured)

    def finish(self, *, step=True):
        if step:
            self.optimizer.step()
        return self.sampler.finish()

    def row(self, index=0, **more):
        return dict(zip(FIELDS, self.finish(**more).table[index].tolist(), strict=True))


def test_every_column_is_right_for_a_gradient_made_by_hand():
    row = Bench((torch.tensor([3.0, 4.0, 0.0, 0.0]), torch.tensor([0.0, -4.0, 3.0, 0.0]))).row()
    assert row == pytest.approx(
        {"norm": 5.0, "abs_max": 4.0, "zero_share": 0.5, "nonfinite": 0.0, "update_ratio": 0.1}
    )  # fmt: skip


def test_elements_that_are_not_finite_are_counted():
    row = Bench((torch.ones(5), torch.tensor([math.nan, 1.0, math.inf, -math.inf, 0.0]))).row()
    assert row["nonfinite"] == 3
    assert row["zero_share"] == pytest.approx(0.2)
    assert math.isnan(row["norm"])


def test_parameters_without_a_gradient_have_no_row():
    sample = Bench((torch.ones(2), None), (torch.ones(2), torch.ones(2))).finish()
    assert (sample.step, sample.indices, tuple(sample.table.shape)) == (5, (1,), (1, len(FIELDS)))


def test_a_sample_without_any_gradient_is_an_empty_table():
    assert tuple(Bench((torch.ones(2), None)).finish().table.shape) == (0, len(FIELDS))


def test_a_parameter_without_elements_is_sampled_all_the_same():
    row = Bench((torch.ones(0), torch.ones(0)), (torch.ones(2), torch.ones(2))).row()
    assert (row["norm"], row["abs_max"], row["nonfinite"]) == (0, 0, 0)
    assert math.isnan(row["update_ratio"])


def test_a_weight_of_zeros_has_no_update_ratio():
    row = Bench((torch.zeros(3), torch.ones(3))).row()
    assert not math.isfinite(row["update_ratio"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_precision_can_be_sampled(dtype):
    row = Bench((torch.full((4,), 2.0, dtype=dtype), torch.full((4,), 0.5, dtype=dtype))).row()
    assert row == pytest.approx(
        {"norm": 1.0, "abs_max": 0.5, "zero_share": 0.0, "nonfinite": 0.0, "update_ratio": 0.025}, rel=0.1
    )  # fmt: skip


def test_several_precisions_share_one_table():
    gradients = [torch.full((1,), float(i + 1), dtype=(torch.float32, torch.float64)[i % 2]) for i in range(4)]
    sample = Bench(*((torch.ones_like(grad), grad) for grad in gradients)).finish()
    for index, row in zip(sample.indices, sample.table.tolist(), strict=True):
        assert row == pytest.approx([index + 1, index + 1, 0, 0, 0.1 * (index + 1)])


def test_a_step_that_was_not_taken_has_an_update_ratio_of_zero():
    assert Bench((torch.ones(3), torch.ones(3))).row(step=False)["update_ratio"] == 0


def test_the_gradients_are_seen_as_they_were_before_clipping_and_the_update_as_it_was_after():
    bench = Bench((torch.tensor([1.0, 0.0]), torch.tensor([30.0, 40.0])))
    clip_gradients(bench.measured, 1.0)
    row = bench.row()
    assert (row["norm"], row["abs_max"]) == (50.0, 40.0)
    assert row["update_ratio"] == pytest.approx(0.1, rel=1e-4)


def test_the_update_ratio_of_a_large_parameter_is_taken_from_evenly_spaced_elements():
    grad = torch.zeros(3 * SUBSET)
    grad[::3] = 1.0
    assert Bench((torch.ones(3 * SUBSET), grad)).row()["update_ratio"] == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("column", [0, 1, 300])
def test_what_moves_in_one_column_of_a_square_matrix_is_seen_as_much_as_it_moves(column):
    grad = torch.zeros(512, 512)
    grad[:, column] = 1.0
    row = Bench((torch.ones(512, 512), grad)).row()
    assert row["update_ratio"] == pytest.approx(0.1 / 512**0.5, rel=0.1)


def test_the_values_of_a_sparse_gradient_are_sampled():
    grad = torch.sparse_coo_tensor([[1, 1, 3]], [1.0, 2.0, -4.0], (5,), check_invariants=True)
    row = Bench((torch.ones(5), grad)).row()
    assert (row["norm"], row["abs_max"], row["nonfinite"]) == (5.0, 4.0, 0.0)
    assert row["update_ratio"] == pytest.approx(0.5 / 5**0.5)
