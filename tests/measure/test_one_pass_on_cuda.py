"""The compiled kernels against torch on a CUDA device.

Where pytest is missing:  PYTHONPATH=src:tests python3 tests/measure/test_one_pass_on_cuda.py
"""

import math
import random

import torch
from torch import Tensor, nn

from on_a_gpu import MARKS, each, no_host_wait, run_all
from stayfinite.measure.fused import Fused, fused_for
from stayfinite.measure.gradients import measure_gradients
from stayfinite.measure.one_pass import Facts, OnePass
from stayfinite.measure.roster import take_roster
from stayfinite.measure.sample import FIELDS, Sampler

pytestmark = MARKS

CUDA = torch.device("cuda", 0)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def numbers(count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    made = torch.randn(count, generator=torch.Generator(CUDA).manual_seed(seed), device=CUDA)
    made[1::7] = 0.0
    return made.to(dtype)


def expected(tensor: Tensor) -> list[float]:
    wide = tensor.double().reshape(-1)
    peak = wide.abs().max().item() if wide.numel() else 0.0
    share = (wide == 0).double().mean().item() if wide.numel() else 1.0
    return [wide.norm().item(), peak, share, (~wide.isfinite()).sum().item()]


def check(tensors: list[Tensor]) -> Facts:
    facts = OnePass(CUDA).read(tensors)
    wanted = torch.tensor([expected(tensor) for tensor in tensors], dtype=torch.float64, device=CUDA)
    torch.testing.assert_close(facts.table[:, :4], wanted, rtol=2e-6, atol=0, equal_nan=True)
    torch.testing.assert_close(facts.norms, wanted[:, 0], rtol=2e-6, atol=0, equal_nan=True)
    torch.testing.assert_close(facts.total, wanted[:, 0].norm().float(), rtol=2e-6, atol=0, equal_nan=True)
    assert facts.zeros.tolist() == [(tensor == 0).sum().item() for tensor in tensors]
    return facts


@each("dtype", DTYPES)
def test_tensors_of_every_size_are_read_right(dtype: torch.dtype) -> None:
    around = [0, 2048, 8192, 32_768, 65_536, 3 * 32_768]
    check([numbers(max(size + more, 0), size, dtype) for size in around for more in (-1, 0, 1, 7)])


def test_dtypes_may_be_mixed() -> None:
    check([numbers(20_000 + 777 * place, place, DTYPES[place % 3]) for place in range(30)])


@each("dtype", DTYPES)
def test_a_tensor_may_begin_anywhere_in_memory(dtype: torch.dtype) -> None:
    whole = numbers(200_000, dtype=dtype)
    for start in range(1, 9):
        whole[start - 1] = math.nan
        check([whole[start : start + size] for size in (1, 2047, 2048, 32_768 - start, 32_768, 100_001)])


def test_tensors_that_are_not_contiguous_are_read_right() -> None:
    table = numbers(1_200_000).view(1000, 1200)
    images = numbers(2 * 3 * 40 * 50).view(2, 3, 40, 50).to(memory_format=torch.channels_last)
    check([table.T, table[:, ::2], table[3:9], images, table[:1].expand(5, 1200)])


@each("bad", [math.nan, math.inf, -math.inf])
@each("place", [0, 2047, 32_767, 32_768, 99_999])
def test_one_bad_element_is_counted_and_shows_in_its_own_norm_alone(bad: float, place: int) -> None:
    spoilt = numbers(100_000)
    spoilt[place] = bad
    facts = check([numbers(10), spoilt, numbers(60_000)])
    assert facts.norms.isfinite().tolist() == [True, False, True]
    assert facts.table[:, 3].tolist() == [0, 1, 0]


def test_ten_thousand_small_tensors_take_one_table() -> None:
    source = random.Random(0)
    sizes = [source.randrange(1, 3000) for _ in range(10_000)]
    whole = numbers(sum(sizes))
    tensors = list(whole.split(sizes))
    facts = OnePass(CUDA).read(tensors)
    norms = torch.stack(torch._foreach_norm([tensor.double() for tensor in tensors]))
    torch.testing.assert_close(facts.norms, norms, rtol=2e-6, atol=0)
    torch.testing.assert_close(facts.total.double(), whole.double().norm(), rtol=2e-6, atol=0)
    assert facts.zeros.sum().item() == (whole == 0).sum().item()


@each("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_of_more_than_four_gibibytes_is_read_to_its_end(dtype: torch.dtype) -> None:
    count = (1 << 32) // dtype.itemsize + 5
    large = torch.full((count,), 0.5, dtype=dtype, device=CUDA)
    large[-1], large[count // 2] = 3.0, 0.0
    facts = OnePass(CUDA).read([large])
    norm, peak, _, bad, _ = facts.table[0].tolist()
    assert math.isclose(norm, math.sqrt(0.25 * (count - 2) + 9.0), rel_tol=1e-6)
    assert (peak, facts.zeros.item(), bad) == (3.0, 1, 0.0)


def test_the_same_tensors_give_the_same_bits_every_time() -> None:
    reader = OnePass(CUDA)
    tensors = [numbers(size, size, dtype) for size in (1_000_003, 77, 300_000) for dtype in DTYPES]
    first = reader.read(tensors)
    for _ in range(20):
        again = reader.read([tensor.clone() for tensor in tensors])
        assert torch.equal(again.table[:, :4], first.table[:, :4])
        assert torch.equal(again.total, first.total)


def test_from_the_second_read_on_kernels_are_launched_directly() -> None:
    reader = OnePass(CUDA)
    tensors = [numbers(5000, seed) for seed in range(3)]
    first, second = reader.read(tensors), reader.read(tensors)
    assert torch.equal(first.table[:, :4], second.table[:, :4])
    # What Triton would refuse to take directly, it was given itself.
    assert reader._launch._direct


def test_reading_never_waits_for_the_device_though_the_tensors_move() -> None:
    reader = OnePass(CUDA)
    tensors = [numbers(5000, seed) for seed in range(50)]
    reader.read(tensors)
    with no_host_wait():
        for _ in range(50):
            tensors = [tensor.clone() for tensor in tensors]
            reader.read(tensors)


def test_a_graph_reads_what_is_in_its_memory_at_each_replay() -> None:
    reader = OnePass(CUDA)
    tensors = [numbers(size, size) for size in (100_000, 5, 0)]
    reader.read(tensors)
    fork = reader.fork()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        facts = fork.read(tensors)
    for value in (1.0, 2.0, math.nan):
        for tensor in tensors:
            tensor.fill_(value)
        # Somebody else reads other tensors with the tables that the fork was made from.
        reader.read([numbers(7), numbers(100_000), numbers(9)])
        graph.replay()
        wanted = [value * math.sqrt(100_000), value * math.sqrt(5), 0.0]
        torch.testing.assert_close(facts.norms.cpu(), torch.tensor(wanted).double(), rtol=1e-6, atol=0, equal_nan=True)


def test_a_sample_of_the_kernels_is_torchs() -> None:
    shapes = [(300, 500), (65_536,), (65_537,), (1000, 1000), (1,), (0,), (200, 100)]
    model = nn.ParameterList(
        nn.Parameter(numbers(math.prod(shape), place, DTYPES[place % 2]).view(shape) + 0.1)
        for place, shape in enumerate(shapes)
    )
    for place, parameter in enumerate(model):
        parameter.grad = numbers(parameter.numel(), 50 + place, parameter.dtype).view(parameter.shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    roster = take_roster(model, optimizer)
    kept = [parameter.detach().clone() for parameter in model]
    tables = []
    for fused in (None, Fused(CUDA)):
        measured = measure_gradients(roster, fused)
        assert (measured.facts is None) == (fused is None), fused and fused.trouble
        sampler = Sampler(roster, 1, measured, fused)
        optimizer.step()
        tables.append(sampler.finish().table)
        with torch.no_grad():
            for parameter, before in zip(model, kept, strict=True):
                parameter.copy_(before)
    by_torch, by_kernels = tables
    torch.testing.assert_close(by_kernels, by_torch, rtol=1e-2, atol=0, equal_nan=True)
    exact = [FIELDS.index(field) for field in ("abs_max", "zero_share", "nonfinite")]
    torch.testing.assert_close(by_kernels[:, exact], by_torch[:, exact], rtol=1e-9, atol=0)


def test_a_training_on_the_device_gets_the_kernels_and_float64_falls_back() -> None:
    for dtype, by_kernels in ((torch.float32, True), (torch.float64, False)):
        model = nn.Linear(4, 4).to(CUDA, dtype)
        roster = take_roster(model, torch.optim.SGD(model.parameters(), lr=0.1))
        fused = fused_for(roster)
        assert fused is not None
        model(torch.ones(2, 4, device=CUDA, dtype=dtype)).sum().backward()
        measured = measure_gradients(roster, fused)
        assert not fused.trouble
        assert (measured.facts is not None) == by_kernels
        torch.testing.assert_close(measured.norms.double(), measure_gradients(roster).norms.double(), rtol=1e-5, atol=0)


if __name__ == "__main__":
    run_all(globals())
