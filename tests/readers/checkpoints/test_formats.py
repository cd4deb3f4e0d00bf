"""Each format is read without torch.load: names, shapes and places are those that torch and safetensors see."""

import io
import struct
import sys

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save, save_file
from torch import nn

from planted_checkpoints import optimizer_state, weights
from stayfinite.readers.checkpoints.facts import FileFacts
from stayfinite.readers.checkpoints.formats import safetensors, torch_save
from stayfinite.readers.checkpoints.formats.opening import read_file
from stayfinite.readers.checkpoints.structure import read_structure
from stayfinite.readers.malformed import Malformed


def flatten(state, prefix=""):
    for name, value in state.items() if isinstance(state, dict) else enumerate(state):
        if isinstance(value, torch.Tensor):
            yield f"{prefix}{name}", value
        elif isinstance(value, dict | list):
            yield from flatten(value, f"{prefix}{name}.")


def bytes_at(facts, place):
    with facts.path.open("rb") as file:
        file.seek(place.offset)
        return file.read(place.nbytes)


def assert_all_there(facts, tensors):
    assert facts.troubles == []
    places = {place.name: place for place in facts.places}
    assert places.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert places[name].shape == tuple(tensor.shape)
        content = io.BytesIO()
        content.write(bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist()) if tensor.numel() else b"")
        assert bytes_at(facts, places[name]) == content.getvalue()


def test_safetensors(tmp_path):
    save_file(weights(), tmp_path / "m.safetensors")
    assert_all_there(read_file(tmp_path / "m.safetensors"), weights())


@pytest.mark.parametrize("new", [True, False])
def test_torch_files_new_and_old_with_models_and_optimizers(tmp_path, new):
    state = {"model": weights(), "optimizer": optimizer_state(), "step": 12, "note": None, "loss": float("nan")}
    torch.save(state, tmp_path / "m.pt", _use_new_zipfile_serialization=new)
    facts = read_file(tmp_path / "m.pt")
    assert_all_there(facts, dict(flatten(state)))
    assert facts.marks == {"step": 12}
    assert list(facts.numbers) == ["loss"]
    assert facts.strangers == ()


def test_tied_weights_parameters_and_unusual_number_formats(tmp_path):
    table = nn.Parameter(torch.randn(4, 4))
    state = {"a": table, "b": table.data, "u16": torch.zeros(3, dtype=torch.uint16), "none": torch.empty(0, 4)}
    torch.save(state, tmp_path / "m.pt")
    facts = read_file(tmp_path / "m.pt")
    assert {place.name: place.dtype for place in facts.places} == {"a": "F32", "b": "F32", "u16": "U16", "none": "F32"}
    assert facts.places[0].offset == facts.places[1].offset


def test_a_whole_pickled_model_gives_its_tensors_their_own_names(tmp_path):
    torch.save(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), tmp_path / "m.pt")
    facts = read_file(tmp_path / "m.pt")
    assert [place.name for place in facts.places] == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_a_class_of_ones_own_is_named_and_the_tensors_are_read_all_the_same(tmp_path):
    class Settings:
        def __init__(self):
            self.rate, self.scale = 0.1, torch.ones(2)

    sys.modules[__name__].Settings = Settings
    Settings.__qualname__ = "Settings"
    torch.save({"model": weights(), "settings": Settings()}, tmp_path / "m.pt")
    facts = read_file(tmp_path / "m.pt")
    assert [name.rsplit(".", 1)[1] for name in facts.strangers] == ["Settings"]
    assert "settings.scale" in {place.name for place in facts.places}


@pytest.mark.filterwarnings("ignore")
def test_distributed_checkpoints(tmp_path):
    state = {"model": weights(), "optimizer": optimizer_state()}
    dcp.save(state, checkpoint_id=tmp_path / "step-10", no_dist=True)
    (found,) = read_structure([tmp_path])
    assert (found.step, found.kind, found.troubles) == (10, "dcp", [])
    tensors = dict(flatten(state))
    assert {place.name: place.shape for file in found.files for place in file.places} == {
        name: tuple(tensor.shape) for name, tensor in tensors.items()
    }


def test_structure_is_read_without_torch(tmp_path):
    import subprocess

    save_file(weights(), tmp_path / "m.safetensors")
    torch.save(weights(), tmp_path / "m.pt")
    code = (
        "import sys; from stayfinite.readers.checkpoints.scan import scan; r = scan(sys.argv[1:], quick=True);"
        "print(len(r.checkpoints), sum(c.facts.tensors for c in r.checkpoints), r.verdict, 'torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code, tmp_path / "m.safetensors", tmp_path / "m.pt"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.split() == [
        "2",
        "18",
        "unknown",
        "False",
    ]


def attempt(reader, data, tmp_path):
    """Read bytes as a format: they are understood, or refused with ``Malformed``, and nothing else happens."""
    facts = FileFacts(path=tmp_path, size=len(data))
    try:
        reader(io.BytesIO(data), facts)
    except Malformed:
        return None
    assert all(place.offset >= 0 and place.offset + place.nbytes <= len(data) for place in facts.places)
    return facts


READERS = {"safetensors": safetensors.read, "zip": torch_save.read_zip, "legacy": torch_save.read_legacy}


def sample(kind):
    state = {"a": torch.randn(3, 4), "b": {"c": torch.ones(2, dtype=torch.int64)}}
    if kind == "safetensors":
        return save({"a": state["a"], "c": state["b"]["c"]})
    content = io.BytesIO()
    torch.save(state, content, _use_new_zipfile_serialization=kind == "zip")
    return content.getvalue()


@pytest.mark.parametrize("kind", READERS)
def test_a_file_cut_off_anywhere_is_refused_or_complained_of(kind, tmp_path_factory):
    data = sample(kind)
    for cut in range(0, len(data) - 1, max(1, len(data) // 150)):
        facts = attempt(READERS[kind], data[:cut], tmp_path_factory.getbasetemp())
        assert facts is None or facts.troubles, cut


@pytest.mark.parametrize("kind", READERS)
@given(st.data())
def test_a_file_with_any_bytes_changed_is_read_or_refused(kind, tmp_path_factory, data):
    content = bytearray(sample(kind))
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=8)):
        content[at] = byte
    attempt(READERS[kind], bytes(content), tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("kind", READERS)
@given(st.binary(max_size=300))
def test_any_bytes_at_all_are_read_or_refused(kind, tmp_path_factory, data):
    attempt(READERS[kind], data, tmp_path_factory.getbasetemp())


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["F32", "I64", "data_offsets", "dtype"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["w", "dtype", "shape", "data_offsets", "__metadata__"]), inner, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_as_a_header_is_read_or_refused(tmp_path_factory, header):
    import json

    text = json.dumps(header).encode()
    attempt(safetensors.read, struct.pack("<Q", len(text)) + text + bytes(64), tmp_path_factory.getbasetemp())


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', "but has 4"),
        (b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', "a gap before"),
        (b'{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', "impossible"),
        (b'{"w":{"dtype":"X9","shape":[1],"data_offsets":[0,4]}}', "unknown dtype 'X9'"),
        (b'{"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":{}}', "appears twice"),
        (b"[]", "not a JSON object"),
        (b"{" * 5000, "not JSON"),
    ],
)
def test_what_is_wrong_with_a_header_is_said(tmp_path, header, words):
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    (trouble,) = read_file(path).troubles
    assert trouble.kind == "damaged"
    assert words in trouble.text
