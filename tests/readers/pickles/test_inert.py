"""A pickle of any kind comes out as data or is refused; nothing that it names is imported, called or hashed."""

import collections
import contextlib
import io
import pickle
import signal
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.pickles.would_call import WouldCall
from stayfinite.readers.malformed import Malformed
from stayfinite.readers.pickles.inert import Bounds, Global, Made, Pairs, read_inert
from stayfinite.readers.pickles.torch_files import MAGIC, looks_old, read_old

BOUNDS = Bounds(longest=1 << 20, operations=100_000)
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def read(data):
    return read_inert(io.BytesIO(data), BOUNDS)


def thawed(value):
    if isinstance(value, Pairs):
        return {key: thawed(each) for key, each in value.pairs}
    return type(value)(map(thawed, value)) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("protocol", [protocol for protocol in PROTOCOLS if protocol >= 3])  # the first with bytes
@given(value=plain)
def test_plain_data_comes_back_as_it_was(protocol, value):
    assert thawed(read(pickle.dumps(value, protocol=protocol)).value) == value


@given(data=st.binary(max_size=300), head=st.sampled_from([b"", b"\x80\x02", b"\x80\x05", b"(", b"]2", b"K\x01\x85"]))
def test_any_bytes_are_data_or_refused(data, head):
    for content in (head + data, head + data + b"."):
        with contextlib.suppress(Malformed):
            read(content)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_call_is_noted_and_its_name_is_told(protocol):
    found = read(pickle.dumps(collections.Counter("aab"), protocol=protocol))
    assert isinstance(found.value, Made)
    assert found.value.callee == Global("collections", "Counter")
    assert thawed(found.value.args) == ({"a": 2, "b": 1},)
    assert found.globals == (Global("collections", "Counter"),)


GETATTR = {Global("builtins", "getattr"), Global("__builtin__", "getattr")}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_of_an_enum_by_its_name_is_no_call_of_getattr(protocol):
    members = [WouldCall(getattr, signal.Signals, name) for name in ("SIGINT", "SIGTERM", "SIGINT")]
    found = read(pickle.dumps(members, protocol=protocol))
    assert [(each.kind.name, each.name) for each in found.value] == [
        ("Signals", "SIGINT"), ("Signals", "SIGTERM"), ("Signals", "SIGINT")
    ]  # fmt: skip
    assert not GETATTR & set(found.globals)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "used",
    [
        WouldCall(getattr, signal.Signals, "mro"),
        WouldCall(getattr, "text", "UPPER"),
        WouldCall(map, getattr, ["SIGINT"]),
        [WouldCall(getattr, signal.Signals, "SIGINT"), WouldCall(getattr, signal.Signals, "__init__")],
        getattr,
    ],
    ids=["a method", "of no class", "handed on", "beside a member", "by itself"],
)
def test_every_other_use_of_getattr_is_told(protocol, used):
    assert GETATTR & set(read(pickle.dumps(used, protocol=protocol)).globals)


def test_a_member_that_is_called_is_no_member():
    looked_up = b"c__builtin__\ngetattr\n(csignal\nSignals\nVSIGINT\ntR"
    assert GETATTR & set(read(looked_up + b"(tR.").globals)
    assert not GETATTR & set(read(looked_up + b".").globals)


class Named:
    def __getnewargs_ex__(self):
        return (1,), {"scale": 2}

    def __new__(cls, *_args, **_names):
        return super().__new__(cls)


def test_named_arguments_are_kept():
    made = read(pickle.dumps(Named(), protocol=4)).value
    assert (made.callee.name, made.args, thawed(made.names)) == ("Named", (1,), {"scale": 2})


def test_arguments_that_are_shared_by_many_calls_are_not_copied():
    arguments = b"(" + b"K\x01" * 10_000 + b"tq\x00"
    call = b"cbuiltins\nobject\nh\x00}\x92"
    content = b"\x80\x04" + arguments + call * 10_000 + b"."
    tracemalloc.start()
    read(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000  # copies would take 800 MB


def test_a_pickle_without_end_is_refused():
    with pytest.raises(Malformed, match="more than 100,000 operations") as refused:
        read(b"\x80\x02" + b"N0" * 60_000 + b".")
    assert refused.value.kind == "unread"


def test_a_string_longer_than_allowed_is_refused():
    with pytest.raises(Malformed, match="a string of 2,097,152 bytes"):
        read(pickle.dumps("x" * (2 << 20)))


def test_an_escape_that_nobody_writes_is_refused_and_no_warning():
    with pytest.raises(Malformed, match="damaged"):
        read(b"S'\\777'\n.")


def old(*values):
    return io.BytesIO(b"".join(pickle.dumps(each, protocol=2) for each in values))


def test_the_older_form_of_torch_is_followed_to_its_fourth_pickle():
    file = old(MAGIC, 1001, {"little_endian": True}, {"lr": 0.1}, ["0"])
    assert looks_old(file.getvalue())
    assert thawed(read_old(file, BOUNDS).value) == {"lr": 0.1}
    assert read_inert(file, BOUNDS).value == ["0"]


@pytest.mark.parametrize("version", [1002, pytest.param(10**5000, id="huge"), None])
def test_an_older_form_of_an_unknown_version_is_refused(version):
    with pytest.raises(Malformed, match="not version 1001"):
        read_old(old(MAGIC, version, {}, {}), BOUNDS)
