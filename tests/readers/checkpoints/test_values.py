"""Every number is looked at: the count, the first index and the largest magnitude are exact, whatever the format."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

import warm
from stayfinite.readers.checkpoints.facts import Place
from stayfinite.readers.checkpoints.formats.opening import read_file
from stayfinite.readers.checkpoints.values.statistics import Tally, tally, values_of
from stayfinite.readers.checkpoints.values.streaming import PIECE, Windows, look_at

NAN, INF = math.nan, math.inf
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
EIGHT_BITS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


def values(path):
    facts = read_file(path)
    assert not facts.troubles
    found = look_at([facts])[0]
    assert not facts.troubles
    return {place.name: each for place, each in zip(facts.places, found, strict=True)}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [NAN, -NAN, INF, -INF])
def test_a_planted_value_is_found_with_its_place(tmp_path, dtype, bad):
    tensor = torch.randn(7, 11, dtype=torch.float32).to(dtype)
    tensor[3, 4] = tensor[6, 10] = bad
    save_file({"w": tensor}, tmp_path / "m.safetensors")
    found = values(tmp_path / "m.safetensors")["w"]
    assert (found.nan, found.infinite) == ((2, 0) if math.isnan(bad) else (0, 2))
    assert found.first == (3, 4)
    assert found.largest == tensor[tensor.isfinite()].abs().max().item()


@pytest.mark.parametrize("dtype", EIGHT_BITS)
def test_a_nan_of_eight_bits_is_found_in_each_of_their_encodings(tmp_path, dtype):
    clean = torch.linspace(-8, 8, 60).to(dtype)
    poisoned = clean.clone()
    poisoned[17] = torch.tensor(NAN).to(dtype)
    torch.save({"clean": clean, "poisoned": poisoned}, tmp_path / "m.pt")
    found = values(tmp_path / "m.pt")
    assert found["clean"].bad == 0
    assert found["clean"].largest == 8
    assert (found["poisoned"].nan, found["poisoned"].first) == (1, (17,))


def test_infinity_of_eight_bits_is_told_from_nan(tmp_path):
    torch.save({"w": torch.tensor([1.0, INF, NAN]).to(torch.float8_e5m2)}, tmp_path / "m.pt")
    assert (values(tmp_path / "m.pt")["w"].infinite, values(tmp_path / "m.pt")["w"].nan) == (1, 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_largest_the_smallest_and_minus_zero_are_finite(tmp_path, dtype):
    info = torch.finfo(dtype)
    tensor = torch.tensor([info.max, info.min, info.tiny, info.smallest_normal / 4, -0.0, 0.0], dtype=dtype)
    save_file({"w": tensor}, tmp_path / "m.safetensors")
    found = values(tmp_path / "m.safetensors")["w"]
    assert found.bad == 0
    assert found.largest == info.max


def test_complex_numbers_are_bad_if_either_half_is(tmp_path):
    tensor = torch.zeros(3, 4, dtype=torch.complex64)
    tensor[1, 2] = complex(0, INF)
    tensor[2, 0] = complex(NAN, 1)
    torch.save({"w": tensor}, tmp_path / "m.pt")
    found = values(tmp_path / "m.pt")["w"]
    assert (found.nan, found.infinite, found.first) == (1, 1, (1, 2))


@pytest.mark.parametrize(
    ("tensor", "constant"),
    [
        (torch.zeros(5, 5), 0.0),
        (torch.ones(5, dtype=torch.bfloat16), 1.0),
        (torch.tensor([1.0, 1.0, 2.0]), None),
        (torch.tensor([1.0, 2.0, 1.0, 1.0, 1.0]), None),
        (torch.zeros(3, dtype=torch.int64), None),
    ],
)
def test_constant_tensors_are_told_from_others(tmp_path, tensor, constant):
    save_file({"w": tensor}, tmp_path / "m.safetensors")
    assert values(tmp_path / "m.safetensors")["w"].constant == constant


def test_a_constant_that_changes_between_two_pieces_is_none(tmp_path):
    tensor = torch.ones(PIECE // 4 + 10)
    tensor[-10:] = 2
    save_file({"w": tensor}, tmp_path / "m.safetensors")
    assert values(tmp_path / "m.safetensors")["w"].constant is None


def test_poison_in_any_piece_of_a_large_tensor_is_found_and_the_first_one_named(tmp_path):
    tensor = torch.full((3, PIECE // 4), 0.5)
    tensor[1, 5] = tensor[2, 7] = NAN
    tensor[0, -1] = INF
    save_file({"w": tensor}, tmp_path / "m.safetensors")
    found = values(tmp_path / "m.safetensors")["w"]
    assert (found.nan, found.infinite, found.first) == (2, 1, (0, PIECE // 4 - 1))


def test_of_a_view_only_its_own_elements_count(tmp_path):
    whole = torch.randn(6, 10)
    whole[2, 8] = NAN
    view = whole[:, :5]
    turned = torch.randn(4, 6)
    turned[1, 5] = INF
    torch.save({"view": view, "turned": turned.t()}, tmp_path / "m.pt")
    found = values(tmp_path / "m.pt")
    assert found["view"].bad == 0
    assert (found["turned"].infinite, found["turned"].first) == (1, (5, 1))
    whole[3, 4] = NAN
    torch.save({"view": view}, tmp_path / "m.pt")
    assert (values(tmp_path / "m.pt")["view"].nan, values(tmp_path / "m.pt")["view"].first) == (1, (3, 4))


@given(
    st.lists(st.floats(width=32) | st.sampled_from([NAN, INF, -INF, 0.0, -0.0]), min_size=1, max_size=40),
    st.sampled_from(FLOATS),
    st.integers(1, 39),
)
def test_any_tensor_in_any_two_pieces_agrees_with_isfinite(numbers, dtype, cut):
    tensor = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    size = tensor.element_size()
    codes = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    place = Place(name="w", dtype=codes[dtype], shape=tuple(tensor.shape), offset=0, nbytes=len(numbers) * size)
    raw, found = tensor.view(torch.uint8), Tally()
    for begin, end in ((0, cut * size), (cut * size, len(raw))):
        if raw[begin:end].numel():
            found.add(tally(place, raw[begin:end].clone(), begin))
    got = values_of(place, found)
    bad = ~tensor.isfinite()
    assert got.bad == int(bad.sum())
    assert got.nan == int(tensor.isnan().sum())
    assert got.first == ((int(bad.to(torch.int8).argmax()),) if bad.any() else None)
    finite = tensor[~bad].double().abs()
    assert got.largest == (finite.max().item() if finite.numel() else 0.0)


def test_mapped_and_read_pieces_are_the_same_bytes(tmp_path):
    (tmp_path / "f").write_bytes(bytes(range(256)) * 5000)
    with (tmp_path / "f").open("rb") as file:
        for offset, length in ((0, 10), (4095, 5000), (1_000_001, 279_999)):
            with (
                Windows(file.fileno()).open(offset, length) as mapped,
                Windows(file.fileno(), may_map=False).open(offset, length) as read,
            ):
                assert torch.equal(mapped, read)
                assert read[0] == offset % 256


@pytest.mark.parametrize("may_map", [True, False])
def test_a_file_that_shrinks_while_it_is_read_is_an_error_and_no_crash(tmp_path, may_map):
    path = tmp_path / "f"
    path.write_bytes(b"x" * (1 << 20))
    with path.open("rb") as file:
        windows = Windows(file.fileno(), may_map=may_map)
        with path.open("r+b") as other:
            other.truncate(1000)
        with pytest.raises(OSError, match="shortened"), windows.open(1 << 19, 4096):
            pass


def test_the_number_of_torch_threads_is_as_before(tmp_path):
    save_file({"w": torch.zeros(10)}, tmp_path / "m.safetensors")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        values(tmp_path / "m.safetensors")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_tensor_larger_than_the_memory_allowed_is_looked_at_in_a_few_megabytes(tmp_path):
    """Sparse on disk, so that the test costs no space; the process may use 1 GiB, with torch in it."""
    header = b'{"w":{"dtype":"F32","shape":[335544320],"data_offsets":[0,1342177280]}}'
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 1342177280)
        file.seek(8 + len(header) + (1 << 30))
        file.write(b"\x00\x00\xc0\x7f")
    code = (
        "import re, sys; from stayfinite.readers.checkpoints.scan import scan; r = scan([sys.argv[1]]);"
        "print(r.checkpoints[0].values[0][0].nan, r.checkpoints[0].values[0][0].first[0],"
        "re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    done = warm.run(["-c", code, path])
    nan, first, kilobytes = map(int, done.stdout.split())
    assert (nan, first) == (1, 1 << 28)
    assert kilobytes < 1 << 20
