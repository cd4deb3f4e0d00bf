"""Whatever lies in a file: a clear error or settings with a note, nothing executed, no hang, no crash."""

import json
import os
import stat
import time
import tracemalloc
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stayfinite.core.settings import Settings
from stayfinite.errors import UsageError
from stayfinite.readers.configs import looks_like_config, read_config, settings_in_text
from stayfinite.readers.configs.files import MOST_BYTES
from stayfinite.readers.configs.reading import settings_of_kind
from stayfinite.readers.configs.tree import MOST_SETTINGS

KINDS = ["yaml", "json", "toml", "ini", "script", "notebook", "shell", "notes"]
SUFFIXES = [".yaml", ".json", ".toml", ".ini", ".py", ".ipynb", ".sh", ".txt", ".bin", ""]
FRAGMENTS = r"""{ } [ ] ( ) : , = # " ' \ --fp16 --lr 1e-4 fp16: true, lr=1e-4 dict( Namespace( TrainingArguments(
<<EOF EOF python train.py *a &a - ? | > !!python/object: {"cells": "cell_type" "code" "source" %%bash !ls x=x+x
def class if : pass torch.float16 é 12 -1 nan ... $X ${X:-1} -m += ** f"{x}" // /* */ ${{ @ lambda: 1e999 0x"""
fragments = st.sampled_from(
    [*FRAGMENTS.split(), "\n", "\t", "\0", "\r", '"' * 3, "'" * 3, "k: (1, 2)\n", "k = [1]\n", "- "]
)
texts = st.one_of(
    st.text(max_size=200), st.lists(fragments, max_size=40).map(" ".join), st.lists(fragments, max_size=40).map("".join)
)


def written(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def check(settings):
    assert isinstance(settings, Settings)
    for setting in settings:
        assert setting.name
        assert setting.line >= 0
        assert isinstance(setting.value, (str, int, float, bool, list, dict, type(None)))
    list(settings.texts())
    settings.find("lr", "fp16")


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
def test_any_text_is_read_as_any_kind(kind, text):
    check(settings_of_kind(kind, text, "file"))


@given(data=st.binary(max_size=300), suffix=st.sampled_from(SUFFIXES))
def test_any_bytes_are_read(tmp_path_factory, data, suffix):
    path = written(tmp_path_factory.mktemp("any"), f"file{suffix}", data)
    check(read_config(path))
    assert looks_like_config(path, data) in {True, False}


@given(data=st.binary(max_size=300), head=st.sampled_from([b"\x80\x02", b"\x80\x04\x95", b"PK\x03\x04"]))
def test_any_opcodes_are_walked(tmp_path_factory, data, head):
    check(read_config(written(tmp_path_factory.mktemp("any"), "training_args.bin", head + data)))


@given(lines=st.lists(texts, max_size=12))
def test_any_lines_of_a_log_are_read(lines):
    check(settings_in_text([(f"train.log:{number}", line) for number, line in enumerate(lines, 1)]))


@pytest.mark.parametrize("kind", [*KINDS, "log"])
@pytest.mark.parametrize(
    "unit",
    [
        "[",
        "{",
        "(",
        '{"a":',
        "a: {",
        "dict(x=",
        "- ",
        "-",
        "(a.b",
        "not ",
        "a=b=",
        "1+",
        "x[",
        '"',
        "'",
        "${",
        " ",
        "\t#",
        "a.",
        "[(",
        "{a: [{b:",
        "true",
        "models--",
    ],
)
def test_depth_and_repetition_cost_neither_the_stack_nor_the_evening(kind, unit):
    began = time.process_time()
    if kind == "log":
        check(settings_in_text([("log:1", unit * 20_000), ("log:2", "Namespace(" + unit * 20_000)]))
    else:
        check(settings_of_kind(kind, unit * 20_000, "file"))
        check(settings_of_kind(kind, "fp16: true\n" + unit * 20_000, "file"))
    assert time.process_time() - began < 3


def test_an_alias_bomb_stays_small(tmp_path):
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    settings = read_config(written(tmp_path, "bomb.yaml", "\n".join(lines)))
    check(settings)
    assert len(settings) <= MOST_SETTINGS


def test_an_anchor_that_holds_itself_ends(tmp_path):
    check(read_config(written(tmp_path, "loop.yaml", "a: &a\n  b: *a\n  lr: 0.1\n")))


def test_yaml_tags_construct_nothing(tmp_path):
    text = f"x: !!python/object/apply:os.system ['touch {tmp_path}/pwned']\nlr: 0.1\n"
    settings = read_config(written(tmp_path, "evil.yaml", text))
    assert settings.value("lr") == 0.1
    assert not (tmp_path / "pwned").exists()


def test_a_huge_file_is_read_as_far_as_the_bound_and_says_so(tmp_path):
    path = written(tmp_path, "huge.yaml", "lr: 0.1\n" + "# nothing here\n" * (MOST_BYTES // 12))
    settings = read_config(path)
    assert settings.value("lr") == 0.1
    assert any("of 5," in text and "bytes were read" in text for _, text in settings.notes)
    assert not looks_like_config(path, path.read_bytes()[:1000])


def test_half_a_json_yields_what_is_whole(tmp_path):
    whole = json.dumps({"fp16": {"enabled": True, "loss_scale": 0}, "lr": 0.001, "name": "a long name"}, indent=2)
    for length in range(len(whole)):
        settings = read_config(written(tmp_path, "half.json", whole[:length]))
        for setting in settings:
            assert setting.value == {} or (setting.name, setting.value) in {
                ("fp16.enabled", True),
                ("fp16.loss_scale", 0),
                ("lr", 0.001),
                ("name", "a long name"),
            }
    assert read_config(written(tmp_path, "half.json", whole[:-2])).value("lr") == 0.001


def test_a_zip_bomb_of_a_training_args_is_not_unpacked(tmp_path):
    path = tmp_path / "training_args.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(40 * 1024 * 1024))
    settings = read_config(path)
    assert len(settings) == 0
    assert "not read" in settings.notes[0][1]


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b"\xef\xbb\xbf"),
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-16-le", b""),
        ("latin-1", b""),
    ],
)
@pytest.mark.parametrize("name", ["c.yaml", "c.json", "c.txt", "c.py"])
def test_encodings_are_recognised(tmp_path, encoding, mark, name):
    remark = "é" if encoding == "latin-1" else "plain"
    text = {
        "c.yaml": f"# {remark}\nfp16: true\r\nlr: 1e-4\r\n",
        "c.json": f'{{"note": "{remark}",\r\n "fp16": true, "lr": 1e-4}}',
        "c.txt": f"note: {remark}\r\nfp16: true\r\nlr: 1e-4",
        "c.py": f"# {remark}\nimport torch\nfp16 = True\nlr = 1e-4\n",
    }[name]
    settings = read_config(written(tmp_path, name, mark + text.encode(encoding)))
    assert (settings.value("fp16"), settings.value("lr")) == (True, 1e-4)


def test_what_is_no_file_is_refused_with_a_reason(tmp_path):
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path, words in [
        (tmp_path, "is a directory"),
        (tmp_path / "missing.yaml", "no such file"),
        (loop, "cannot read"),
        (pipe, "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("a\0b", "is not a path"),
        (tmp_path / ("x" * 5000), "cannot read"),
    ]:
        with pytest.raises(UsageError, match=words):
            read_config(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_without_permission_is_refused_with_the_way_out(tmp_path):
    path = written(tmp_path, "secret.yaml", "lr: 1")
    path.chmod(stat.S_IWUSR)
    with pytest.raises(UsageError, match="chmod u\\+r"):
        read_config(path)


def test_a_notebook_in_a_notebook_is_not_followed(tmp_path):
    inner = '{"cells": [{"cell_type": "code", "source": "lr = 1"}]}'
    for _ in range(4):
        inner = json.dumps({"cells": [{"cell_type": "code", "source": f"%%writefile again.ipynb\n{inner}"}]})
    check(read_config(written(tmp_path, "outer.ipynb", inner)))


def test_a_thousand_branches_one_inside_the_other_are_read(tmp_path):
    code = "import torch\nloss = F.cross_entropy(F.softmax(x, -1), y)\nif a == 0:\n    lr = 0\n"
    code += "".join(f"elif a == {number}:\n    lr = {number}\n" for number in range(1, 1500))
    settings = read_config(written(tmp_path, "train.py", code))
    assert settings.find("lr") is not None


LONG = "k" * 10_000


def nested_keys() -> str:
    text = "{" + ", ".join(f'"{number}": 1' for number in range(2000)) + "}"
    for _ in range(60):
        text = f'{{"{LONG}": {text}}}'
    return text


HOSTILE = {
    "tables.toml": lambda: "\n".join("[" + ".".join(["a"] * depth) + "]" for depth in range(1, 1000)),
    "key.toml": lambda: "[" + ".".join(f"k{number}" for number in range(100_000)) + "]\nlr = 1\n",
    "keys.toml": lambda: "\n".join(".".join(["a"] * 500) + f".b{number} = 1" for number in range(2000)),
    "chain.yaml": lambda: (
        "a0: &a0 {lr: 1}\n" + "".join(f"a{n}: &a{n}\n  <<: *a{n - 1}\n  k{n}: 1\n" for n in range(1, 3000))
    ),
    "bomb.yaml": lambda: (
        "b: &b {" + ", ".join(f"k{n}: 1" for n in range(2000)) + "}\nx:\n  <<: [" + "*b," * 2000 + "]\n"
    ),
    "itself.yaml": lambda: "a: &a\n" + "".join(f"  k{number}: *a\n" for number in range(2000)) + "  lr: 1\n",
    "list.yaml": lambda: "a: &a [" + ", ".join(["*a"] * 1000) + "]\nlr: 1\n",
    "keys.json": nested_keys,
    "quotes.sh": lambda: "#!/bin/bash\npython train.py " + "\"'" * 9000 + "\n",
    "variables.sh": lambda: (
        "#!/bin/bash\n" + "\n".join("python t.py --a=" + "${B:-${C:-" * 500 + "\\" for _ in range(50))
    ),
    "comments.sh": lambda: "#!/bin/bash\n" + "\n".join("X=(" + " #" * 9000 for _ in range(50)),
    "integer.py": lambda: "import torch\nlr = " + "9" * 10_000 + "\nx = 10**100000\ny = f'{10**6000}'\nfp16 = True\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_grows_with_its_square_has_a_budget(name, tmp_path):
    path = written(tmp_path, name, HOSTILE[name]())
    began = time.process_time()
    settings = read_config(path)
    assert time.process_time() - began < 5
    check(settings)


@pytest.mark.parametrize("name", ["keys.json", "itself.yaml"])
def test_names_inside_names_have_a_budget_of_memory(name, tmp_path):
    path = written(tmp_path, name, HOSTILE[name]())
    tracemalloc.start()
    try:
        read_config(path)
        assert tracemalloc.get_traced_memory()[1] < 128 << 20
    finally:
        tracemalloc.stop()


def test_deep_and_long_names_keep_their_last_steps(tmp_path):
    settings = read_config(written(tmp_path, "deep.json", f'{{"{LONG}": {{"optimizer": {{"lr": 3}}}}}}'))
    assert settings.value("optimizer_lr") == 3
