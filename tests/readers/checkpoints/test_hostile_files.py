"""Files that mean harm, or are rubble: a clear message, no crash, no hang, and nothing executed."""

import io
import os
import pickle
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from readers.pickles.would_call import WouldCall
from stayfinite.readers.checkpoints.formats.opening import read_file
from stayfinite.readers.checkpoints.scan import scan


def torch_file(path, pickled, members=(), compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("m/data.pkl", pickled)
        for name, content in members:
            archive.writestr(f"m/data/{name}", content)


@pytest.mark.parametrize("form", ["zip", "old", "bare"])
def test_a_pickle_that_would_run_a_command_is_named_and_not_run(tmp_path, form):
    trace, path = tmp_path / "executed", tmp_path / "m.pt"
    state = {"model": {"w": torch.ones(2, 2)}, "extra": WouldCall(os.system, f"touch {trace}")}
    if form == "bare":
        path.write_bytes(pickle.dumps(state["extra"]))
    else:
        torch.save(state, path, _use_new_zipfile_serialization=form == "zip")
    result = scan([path])
    assert not trace.exists()
    dangerous = [finding for finding in result.findings if "would run code" in finding.title]
    assert "posix.system" in dangerous[0].evidence[0]
    assert result.verdict == "sick"
    pickle.loads(pickle.dumps(state["extra"]))
    assert trace.exists()  # so the bomb was a real one


def test_a_memo_of_four_billion_places_takes_no_memory(tmp_path):
    torch_file(tmp_path / "m.pt", b"\x80\x02Kr\xff\xff\xff\xff.")
    torch_file(tmp_path / "n.pt", b"\x80\x02K\x01r\xff\xff\xff\xff.")
    assert scan([tmp_path]).verdict in ("healthy", "sick")


def test_nested_tuples_as_a_key_do_not_take_for_ever(tmp_path):
    laughs = b"\x80\x02}K\x01\x85" + b"2\x86" * 60 + b"K\x01s."
    torch_file(tmp_path / "m.pt", laughs)
    assert read_file(tmp_path / "m.pt").troubles == []


def test_nested_tuples_in_place_of_a_storage_are_not_printed(tmp_path):
    laughs = b"K\x01\x85" + b"2\x86" * 60
    storage = b"(X\x07\x00\x00\x00storage" + laughs + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ"
    torch_file(tmp_path / "m.pt", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00))tR.")
    assert "has an unknown storage type: tuple" in read_file(tmp_path / "m.pt").troubles[0].text


def test_lists_within_lists_ten_thousand_deep_are_survived(tmp_path):
    torch_file(tmp_path / "m.pt", b"\x80\x02" + b"]" * 10_000 + b"a" * 9_999 + b".")
    assert read_file(tmp_path / "m.pt").format == "torch"


def test_a_list_that_contains_itself_is_walked_once(tmp_path):
    torch_file(tmp_path / "m.pt", b"\x80\x02]q\x00h\x00a.")
    assert read_file(tmp_path / "m.pt").troubles == []


def test_a_zip_bomb_is_not_unpacked(tmp_path):
    content = io.BytesIO()
    torch.save({"w": torch.zeros(5_000_000)}, content)
    with zipfile.ZipFile(content) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        torch_file(tmp_path / "m.pt", archive.read(name), [("0", bytes(20_000_000))], zipfile.ZIP_DEFLATED)
    assert (tmp_path / "m.pt").stat().st_size < 100_000
    result = scan([tmp_path / "m.pt"])
    assert "compressed" in result.findings[0].evidence[0]
    assert result.checkpoints[0].state == "unknown"


def test_an_archive_that_lies_about_its_sizes_is_refused(tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"w": torch.zeros(100)}, path)
    content = bytearray(path.read_bytes())
    end = content.rfind(b"PK\x06\x06")
    content[end + 40 : end + 56] = b"\xfe\xff\xff\x7f\x00\x00\x00\x00" * 2
    path.write_bytes(content)
    assert "zip directory" in read_file(path).troubles[0].text


def test_tensors_that_lie_over_one_another_a_thousand_times_are_not_read_a_thousand_times(tmp_path):
    block = torch.zeros(100_000)
    torch.save({str(i): block[i:] for i in range(1000)}, tmp_path / "m.pt")
    result = scan([tmp_path / "m.pt"])
    assert "overlap many times" in result.findings[0].evidence[0]


@pytest.mark.parametrize("name", ["m.pt", "m.safetensors", "m.ckpt", "m.bin", "m.pth"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\x00" * 5000, "starts with zeros"),
        (bytes(range(7, 200)) * 20, ""),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"PK\x03\x04" + b"x" * 100, "truncated"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "pickle"),
    ],
)
def test_rubble_is_called_by_its_name(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    result = scan([tmp_path / name])
    assert result.verdict == "sick"
    assert result.findings[0].code == "SF703"
    assert words in result.findings[0].evidence[0]


def test_a_gguf_package_is_no_training_checkpoint(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    result = scan([tmp_path / "model.gguf"])
    assert "GGUF file" in result.findings[0].evidence[0]
    assert result.verdict == "unknown"
    assert scan([tmp_path]).checkpoints == ()


def test_symlink_loops_and_broken_links_end(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "back").symlink_to(tmp_path / "a")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "gone.pt").symlink_to(tmp_path / "nowhere.pt")
    save_file({"w": torch.ones(2)}, tmp_path / "a" / "b" / "model.safetensors")
    result = scan([tmp_path])
    assert sorted(each.state for each in result.checkpoints) == ["good", "unknown"]


def test_a_pipe_with_the_name_of_a_checkpoint_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "m.pt")
    os.mkfifo(tmp_path / "m.bin")
    (result,) = scan([tmp_path]).checkpoints
    assert "not a regular file" in result.findings[0].evidence[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_said(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "m.safetensors")
    (tmp_path / "m.safetensors").chmod(0)
    assert "Permission denied" in scan([tmp_path]).findings[0].evidence[0]


def test_a_name_that_plays_with_the_terminal_is_printed_harmlessly(tmp_path, capsys):
    from stayfinite.cli import main

    torch.save({"w\x1b[2J\r\ud800": torch.full((3,), float("nan"))}, tmp_path / "step_1.pt")
    assert main(["scan", str(tmp_path)]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_numbers_too_long_to_be_printed_are_no_trouble(tmp_path):
    long = pickle.dumps({"step": 10**5000, 10**5000: {"w": [float("nan")]}}, protocol=2)
    torch_file(tmp_path / "m.pt", long)
    assert scan([tmp_path]).to_json()["checkpoints"][0]["step"] is None


@pytest.mark.filterwarnings("ignore")
def test_a_table_of_contents_with_any_bytes_changed_is_read_or_refused(tmp_path):
    import random

    import torch.distributed.checkpoint as dcp

    dcp.save({"w": torch.ones(4), "v": torch.zeros(2, 2)}, checkpoint_id=tmp_path / "step-1", no_dist=True)
    table = tmp_path / "step-1" / ".metadata"
    content = table.read_bytes()
    chance = random.Random(0)
    for _ in range(150):
        changed = bytearray(content)
        for _ in range(chance.randint(1, 5)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        table.write_bytes(changed[: chance.choice([len(changed), chance.randrange(len(changed))])])
        assert scan([tmp_path], quick=True).checkpoints[0].facts.path.name == "step-1"
