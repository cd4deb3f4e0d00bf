"""The kernels against torch, in Triton's interpreter; on a GPU: test_one_pass_on_cuda.py."""

import math
import random

import pytest
import torch
from torch import nn

from stayfinite.measure.gradients import measure_gradients
from stayfinite.measure.movement import Movement, spacing
from stayfinite.measure.one_pass import OnePass, Tuning, is_dense
from stayfinite.measure.roster import take_roster
from stayfinite.measure.sample import FIELDS, Sampler
from stayfinite.measure.tables import cut

pytest.importorskip("triton", reason="the kernels need Triton")
if torch.cuda.is_available():
    pytest.skip("here the kernels are compiled; see test_one_pass_on_cuda.py", allow_module_level=True)

# The interpreter computes with numpy, which remarks on what is meant here: 0 / 0 and the square of infinity.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CPU = torch.device("cpu")
SMALL = Tuning(chunk=512, block=64, unroll=2)
"""Many chunks without many numbers: the interpreter is slow."""


class Kernels:
    """What ``Fused`` is on a GPU, with small chunks."""

    def __init__(self, subset=64):
        self.one_pass, self.movement = OnePass(CPU, SMALL), Movement(CPU, subset)

    def look(self, groups):
        return self.one_pass.read([grad for group in groups for grad in group])

    def watch(self, weights):
        return self.movement if self.movement.begin(weights) else None


def numbers(count, seed=0, dtype=torch.float32):
    made = torch.randn(count, generator=torch.Generator().manual_seed(seed))
    made[1::7] = 0.0
    return made.to(dtype)


def expected(tensor):
    wide = tensor.double().reshape(-1)
    peak = wide.abs().max().item() if wide.numel() else 0.0
    share = (wide == 0).double().mean().item() if wide.numel() else 1.0
    return [wide.norm().item(), peak, share, (~wide.isfinite()).sum().item()]


def check(tensors, **more):
    facts = OnePass(CPU, SMALL).read(tensors, **more)
    wanted = torch.tensor([expected(tensor) for tensor in tensors], dtype=torch.float64)
    torch.testing.assert_close(facts.table[:, :4], wanted, rtol=1e-6, atol=0, equal_nan=True)
    torch.testing.assert_close(facts.norms, wanted[:, 0], rtol=1e-6, atol=0, equal_nan=True)
    torch.testing.assert_close(facts.total, wanted[:, 0].norm().float(), rtol=1e-6, atol=0, equal_nan=True)
    assert facts.zeros.tolist() == [(tensor == 0).sum().item() for tensor in tensors]
    return facts


SIZES = [0, 1, 63, 64, 65, 511, 512, 513, 1100]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tensors_of_every_size_are_read_right(dtype):
    check([numbers(size, size, dtype) for size in SIZES])


def test_dtypes_may_be_mixed_and_come_in_any_order():
    kinds = [torch.float32, torch.bfloat16, torch.float16, torch.bfloat16, torch.float32, torch.float32]
    check([numbers(200 + 3 * place, place, dtype) for place, dtype in enumerate(kinds)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_may_begin_anywhere_in_memory(dtype):
    whole = numbers(3000, dtype=dtype)
    whole[-1] = 1e4
    for start in (1, 3, 7):
        # What lies before and behind must not be seen.
        whole[start - 1] = math.nan
        check([whole[start : start + size] for size in (1, 512, 1024 - start, 1029)])


def test_tensors_that_are_not_contiguous_are_read_right():
    table = numbers(1200).view(30, 40)
    images = numbers(2 * 3 * 4 * 5).view(2, 3, 4, 5).to(memory_format=torch.channels_last)
    tensors = [table.T, table[:, ::2], table[3:9], images, table[:1].expand(5, 40)]
    assert [is_dense(tensor) for tensor in tensors] == [True, False, True, True, False]
    check(tensors)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 63, 511, 512, 999])
def test_one_bad_element_is_counted_and_shows_in_its_own_norm_alone(bad, place):
    spoilt = numbers(1000)
    spoilt[place] = bad
    facts = check([numbers(10), spoilt, numbers(600)])
    assert facts.norms.isfinite().tolist() == [True, False, True]
    assert facts.table[:, 3].tolist() == [0, 1, 0]


def test_negative_zero_is_a_zero_and_a_subnormal_number_is_none():
    facts = OnePass(CPU, SMALL).read([torch.tensor([-0.0, 0.0, 1e-40, -1e-45])])
    assert facts.zeros.tolist() == [2]
    assert facts.table[0, 1].item() == pytest.approx(1e-40, rel=1e-4)


def test_the_same_tensors_give_the_same_bits_and_other_addresses_change_nothing():
    reader, tensors = OnePass(CPU, SMALL), [numbers(700, 1), numbers(90, 2)]
    first = reader.read(tensors)
    again, moved = reader.read(tensors), reader.read([tensor.clone() for tensor in tensors])
    for other in (again, moved):
        assert torch.equal(first.table[:, :4], other.table[:, :4])
        assert torch.equal(first.total, other.total)


def test_a_reader_follows_when_other_tensors_have_gradients():
    reader = OnePass(CPU, SMALL)
    for sizes in ((5, 600), (600,), (5, 600), (0, 7, 7)):
        tensors = [numbers(size, size) for size in sizes]
        wanted = [expected(tensor)[0] for tensor in tensors]
        assert reader.read(tensors).norms.tolist() == pytest.approx(wanted, rel=1e-6)


def test_many_small_tensors_take_one_table():
    source = random.Random(0)
    check([numbers(source.randrange(0, 40), place) for place in range(30)])


def test_chunks_cover_every_element_once():
    chunks = cut([0, 5, 10, 0, 11], [torch.float32] * 3 + [torch.float16] * 2, 5, CPU)
    assert (chunks.owners.tolist(), chunks.places.tolist()) == ([1, 2, 2, 4, 4, 4], [0, 0, 1, 0, 1, 2])
    assert chunks.starts.tolist() == [0, 0, 1, 3, 3, 6]
    assert [(span.dtype, span.first, span.count) for span in chunks.spans] == [
        (torch.float32, 0, 3), (torch.float16, 3, 3),
    ]  # fmt: skip


class Bench:
    """The same parameters and gradients, measured with and without the kernels."""

    def __init__(self, *shapes, dtypes=(torch.float32, torch.bfloat16)):
        self.model = nn.ParameterList(
            nn.Parameter(numbers(math.prod(shape), place, dtypes[place % len(dtypes)]).view(shape) + 0.1)
            for place, shape in enumerate(shapes)
        )
        for place, parameter in enumerate(self.model):
            parameter.grad = numbers(parameter.numel(), 50 + place, parameter.dtype).view(parameter.shape)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.roster = take_roster(self.model, self.optimizer)

    def table(self, kernels):
        measured = measure_gradients(self.roster, kernels)
        sampler = Sampler(self.roster, 1, measured, kernels)
        kept = [parameter.detach().clone() for parameter in self.model]
        self.optimizer.step()
        sample = sampler.finish()
        with torch.no_grad():
            for parameter, before in zip(self.model, kept, strict=True):
                parameter.copy_(before)
        return measured, sample


def test_a_sample_of_the_kernels_is_torchs(monkeypatch):
    monkeypatch.setattr("stayfinite.measure.sample.spacing", lambda size: spacing(size, 64))
    bench = Bench((30,), (7, 11), (0,), (64,), (65,), (200,), (3, 50))
    (plain, by_torch), (fused, by_kernels) = bench.table(None), bench.table(Kernels())
    assert plain.facts is None
    assert fused.facts is not None
    assert (fused.indices, by_kernels.indices) == (plain.indices, by_torch.indices)
    torch.testing.assert_close(fused.norms, plain.norms.double(), rtol=1e-5, atol=0)
    torch.testing.assert_close(fused.total, plain.total, rtol=1e-5, atol=0)
    torch.testing.assert_close(by_kernels.table, by_torch.table, rtol=1e-2, atol=0, equal_nan=True)
    exact = [FIELDS.index(field) for field in ("abs_max", "zero_share", "nonfinite")]
    torch.testing.assert_close(by_kernels.table[:, exact], by_torch.table[:, exact], rtol=1e-12, atol=0)


def test_a_step_that_was_not_taken_has_moved_nothing():
    movement = Movement(CPU, 64)
    weights = [numbers(300), numbers(5) + 1]
    movement.begin(weights)
    assert movement.ratios().tolist() == [0.0, 0.0]
    movement.begin(weights)
    weights[1] *= 1.5
    assert movement.ratios().tolist() == [0.0, pytest.approx(0.5)]
