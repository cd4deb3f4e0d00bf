"""What is found: planted faults, and healthy look-alikes on which the scan is quiet."""

import json

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

from planted_checkpoints import INF, NAN, optimizer_state, save_sharded, save_trainer_checkpoint, weights
from stayfinite.readers.checkpoints.scan import scan


def codes(result, *severities):
    return [each.code for each in result.findings if each.severity in (severities or ("error", "warning"))]


def poisoned(name="layers.0.attention.weight", value=NAN, seed=0):
    state = weights(seed)
    state[name].view(-1)[33] = value
    return state


def test_a_healthy_trainer_directory_is_healthy(tmp_path):
    for step in (500, 1000):
        save_trainer_checkpoint(tmp_path, step, weights(step))
    save_file(weights(1000), tmp_path / "model.safetensors")
    result = scan([tmp_path])
    assert (result.verdict, codes(result)) == ("healthy", [])
    assert [each.facts.step for each in result.checkpoints] == [500, 1000, None]


def test_poison_is_found_with_tensor_count_and_first_index_and_dated(tmp_path):
    for step in (500, 1000):
        save_trainer_checkpoint(tmp_path, step, weights(step))
    for step in (1500, 2000):
        save_trainer_checkpoint(tmp_path, step, poisoned())
    result = scan([tmp_path])
    finding = result.findings[0]
    assert (finding.code, finding.cause, finding.severity) == ("SF702", "poisoned-checkpoint", "error")
    assert "layers.0.attention.weight (F32): 1 NaN of 1,024, first at [1, 1], in model.safetensors" in finding.evidence
    assert result.newest_good is result.checkpoints[1]
    assert result.poison_entered.to_json() == {
        "after": str(tmp_path / "checkpoint-1000"),
        "after_step": 1000,
        "by": str(tmp_path / "checkpoint-1500"),
        "by_step": 1500,
    }


def test_poison_in_the_optimizer_alone_is_poison(tmp_path):
    path = save_trainer_checkpoint(tmp_path, 500, weights())
    state = optimizer_state()
    state["state"][0]["exp_avg_sq"][0, 0] = INF
    torch.save(state, path / "optimizer.pt")
    result = scan([tmp_path])
    assert codes(result) == ["SF702"]
    assert "state.0.exp_avg_sq" in result.findings[0].evidence[0]
    assert result.poison_entered.after is None


def test_a_negative_second_moment_is_an_error_and_a_negative_first_one_is_none(tmp_path):
    path = save_trainer_checkpoint(tmp_path, 500, weights())
    state = optimizer_state()
    state["state"][0]["exp_avg"][0, 0] = -1.0
    torch.save(state, path / "optimizer.pt")
    assert codes(scan([tmp_path])) == []
    state["state"][0]["exp_avg_sq"][0, 0] = -1e-12
    torch.save(state, path / "optimizer.pt")
    finding = scan([tmp_path]).findings[0]
    assert (finding.code, finding.severity) == ("SF702", "error")
    assert "negative second moments: values in 1 tensor" in finding.title
    assert "state.0.exp_avg_sq (F32): down to -1e-12" in finding.evidence[0]


def test_a_view_that_leaves_out_negative_numbers_of_its_storage_is_no_negative_moment(tmp_path):
    storage = torch.ones(8, 2)
    storage[:, 1] = -1.0
    torch.save({"state": {0: {"exp_avg_sq": storage[:, 0]}}}, tmp_path / "optimizer.pt")
    assert codes(scan([tmp_path])) == []


def test_another_training_beside_it_does_not_date_the_poison(tmp_path):
    save_trainer_checkpoint(tmp_path / "a", 500, weights())
    save_trainer_checkpoint(tmp_path / "a", 1500, poisoned())
    save_trainer_checkpoint(tmp_path / "b", 1000, weights(1))
    save_trainer_checkpoint(tmp_path / "b", 2000, weights(2))
    result = scan([tmp_path])
    assert result.poison_entered.after_step == 500
    assert result.newest_good.facts.step == 500


@pytest.mark.parametrize("name", ["causal_mask", "encoder.attn_mask", "observer.min_val", "alibi"])
def test_infinity_in_a_mask_is_normal_and_nan_in_it_is_not(tmp_path, name):
    save_file(weights() | {name: torch.full((4, 4), -INF)}, tmp_path / "model.safetensors")
    assert codes(scan([tmp_path])) == []
    save_file(weights() | {name: torch.full((4, 4), NAN)}, tmp_path / "model.safetensors")
    assert codes(scan([tmp_path])) == ["SF702"]


def test_a_learning_rate_that_is_nan_is_told_and_an_unbeaten_best_value_is_not(tmp_path):
    state = {"model": weights(), "optimizer": {"param_groups": [{"lr": NAN}]}, "best": INF, "patience": INF}
    torch.save(state, tmp_path / "step_10.pt")
    result = scan([tmp_path])
    assert [(each.code, each.severity) for each in result.findings if "param_groups" in each.title] == [
        ("SF702", "error")
    ]
    assert codes(result) == ["SF702"]


def test_weights_beyond_the_range_of_fp16_are_told_and_counts_and_statistics_are_not(tmp_path):
    state = weights()
    save_file(state, tmp_path / "model.safetensors")
    torch.save(optimizer_state(steps=10**6), tmp_path / "optimizer.pt")
    assert codes(scan([tmp_path])) == []
    state["head.weight"][0, 0] = 7e4
    save_file(state, tmp_path / "model.safetensors")
    (finding,) = [each for each in scan([tmp_path]).findings if each.severity == "warning"]
    assert "65,504" in finding.title
    assert "head.weight (BF16): magnitudes up to 7.014e+04" in finding.evidence[0]


def test_a_zeroed_layer_is_worth_a_line_and_a_zeroed_model_is_damage(tmp_path):
    state = weights()
    state["layers.0.attention.weight"].zero_()
    save_file(state, tmp_path / "model.safetensors")
    result = scan([tmp_path])
    assert codes(result) == []
    assert any("layers.0.attention.weight" in line for each in result.findings for line in each.evidence)
    for name in ("embed.weight", "head.weight"):
        state[name].zero_()
    save_file(state, tmp_path / "model.safetensors")
    assert codes(scan([tmp_path])) == ["SF703"]


def adapter(trained):
    b = torch.randn(16, 4) * 0.01 if trained else torch.zeros(16, 4)
    return {"base.q.lora_A.weight": torch.randn(4, 16), "base.q.lora_B.weight": b}


def save_adapter(root, step, trained):
    path = root / f"checkpoint-{step}"
    path.mkdir(parents=True)
    save_file(adapter(trained), path / "adapter_model.safetensors")
    (path / "adapter_config.json").write_text("{}")
    torch.save(optimizer_state(), path / "optimizer.pt")


def test_a_fresh_adapter_is_normal_and_one_that_is_fresh_again_is_not(tmp_path):
    (tmp_path / "fresh").mkdir()
    save_file(adapter(False), tmp_path / "fresh" / "adapter_model.safetensors")
    assert codes(scan([tmp_path / "fresh"]), "error", "warning", "info") == []
    save_adapter(tmp_path / "run", 100, trained=True)
    save_adapter(tmp_path / "run", 200, trained=True)
    assert codes(scan([tmp_path / "run"])) == []
    save_adapter(tmp_path / "run", 300, trained=False)
    assert codes(scan([tmp_path / "run"])) == ["SF705"]


def test_an_architecture_that_changes_between_steps_is_told(tmp_path):
    save_trainer_checkpoint(tmp_path, 1, weights())
    save_trainer_checkpoint(tmp_path, 2, weights() | {"embed.weight": torch.randn(65, 32)})
    result = scan([tmp_path])
    assert codes(result) == ["SF704"]
    assert result.findings[0].evidence == ("embed.weight is [64, 32] before and [65, 32] after",)


def test_an_optimizer_missing_from_one_is_a_warning_and_from_all_a_choice(tmp_path):
    for step in (1, 2):
        save_trainer_checkpoint(tmp_path / "all", step, weights(), optimizer=False)
        save_trainer_checkpoint(tmp_path / "one", step, weights(), optimizer=step == 1)
    assert codes(scan([tmp_path / "all"])) == []
    assert codes(scan([tmp_path / "one"])) == ["SF701"]


def test_a_sharded_model_in_order_is_healthy(tmp_path):
    save_sharded(tmp_path / "model", weights())
    result = scan([tmp_path])
    assert (result.verdict, len(result.checkpoints), result.checkpoints[0].facts.tensors) == ("healthy", 1, 9)


def test_every_way_in_which_shards_and_index_disagree_is_told(tmp_path):
    index = "model.safetensors.index.json"

    def evidence(name, damage):
        path = save_sharded(tmp_path / name, weights())
        damage(path)
        result = scan([path])
        return [line for each in result.findings if each.code == "SF703" for line in each.evidence], codes(result)

    def missing(path):
        (path / "model-00002-of-00003.safetensors").unlink()

    def without_index(path):
        missing(path)
        (path / index).unlink()

    def fewer(path):
        tensors = load_file(path / "model-00001-of-00003.safetensors")
        save_file(dict(list(tensors.items())[1:]), path / "model-00001-of-00003.safetensors")

    def more(path):
        file = path / "model-00001-of-00003.safetensors"
        save_file(load_file(file) | {"stranger": torch.ones(3)}, file)

    def total(path):
        record = json.loads((path / index).read_text())
        record["metadata"]["total_size"] += 1
        (path / index).write_text(json.dumps(record))

    lines, found = evidence("missing", missing)
    assert "model-00002-of-00003.safetensors is missing" in lines[0]
    assert found == ["SF703"]
    assert "1 of 3 shards are missing" in evidence("without", without_index)[0][0]
    assert "lacks 1 tensors" in evidence("fewer", fewer)[0][0]
    assert "not listed in" in evidence("more", more)[0][0]
    lines, found = evidence("total", total)
    assert "bytes in total" in lines[0]
    assert found == []
    assert "is damaged" in evidence("broken", lambda path: (path / index).write_text("{"))[0][0]


def test_a_truncated_shard_names_the_tensors_that_are_lost(tmp_path):
    path = save_sharded(tmp_path / "m", weights()) / "model-00001-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    result = scan([tmp_path])
    assert codes(result) == ["SF703"]
    assert "truncated" in result.findings[0].evidence[0]
    assert result.checkpoints[0].state == "damaged"


@pytest.mark.parametrize("form", ["{sum}  model.safetensors\n", "SHA256 (model.safetensors) = {sum}\n"])
def test_a_hash_beside_a_file_is_compared(tmp_path, form):
    import hashlib

    save_file(weights(), tmp_path / "model.safetensors")
    digest = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
    (tmp_path / "SHA256SUMS").write_text(form.format(sum=digest))
    assert scan([tmp_path]).verdict == "healthy"
    (tmp_path / "SHA256SUMS").write_text(form.format(sum="0" * 64))
    assert codes(scan([tmp_path])) == ["SF703"]
    assert codes(scan([tmp_path], hashes=False)) == []


@pytest.mark.filterwarnings("ignore")
def test_distributed_checkpoints_are_looked_through_and_a_missing_piece_is_told(tmp_path):
    dcp.save({"model": poisoned()}, checkpoint_id=tmp_path / "step-10", no_dist=True)
    result = scan([tmp_path])
    assert codes(result) == ["SF702"]
    assert "model.layers.0.attention.weight" in result.findings[0].evidence[0]
    file = next((tmp_path / "step-10").glob("*.distcp"))
    file.write_bytes(file.read_bytes()[:-3000])
    assert "SF703" in codes(scan([tmp_path]))
    file.unlink()
    assert "is missing" in scan([tmp_path]).findings[0].evidence[0]


@pytest.mark.filterwarnings("ignore")
def test_distributed_pieces_without_their_table_were_never_finished(tmp_path):
    dcp.save({"model": weights()}, checkpoint_id=tmp_path / "step-10", no_dist=True)
    (tmp_path / "step-10" / ".metadata").unlink()
    assert ".metadata is missing" in scan([tmp_path]).findings[0].evidence[0]


def save_deepspeed(root, step, ranks=2):
    path = root / f"global_step{step}"
    path.mkdir(parents=True)
    state = {"module": weights(), "dp_world_size": 2, "mp_world_size": 1, "global_steps": step}
    torch.save(state, path / "mp_rank_00_model_states.pt")
    for rank in range(ranks):
        moments = {"optimizer_state_dict": {"base_optimizer_state": [{"exp_avg": torch.randn(50)}]}}
        torch.save(moments, path / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    (root / "latest").write_text(f"global_step{step}")


def test_deepspeed_directories_are_one_checkpoint_each_and_a_missing_rank_is_told(tmp_path):
    save_deepspeed(tmp_path, 5)
    result = scan([tmp_path])
    assert [(each.facts.step, each.facts.kind, each.state) for each in result.checkpoints] == [(5, "deepspeed", "good")]
    save_deepspeed(tmp_path, 10, ranks=1)
    assert "1 of 2 ranks" in scan([tmp_path]).findings[0].evidence[0]


def test_a_trainer_checkpoint_with_deepspeed_in_it_is_one_checkpoint(tmp_path):
    path = save_trainer_checkpoint(tmp_path, 5, weights(), optimizer=False)
    save_deepspeed(path, 5)
    result = scan([tmp_path])
    assert [(each.facts.path.name, len(each.facts.files)) for each in result.checkpoints] == [("checkpoint-5", 4)]
    assert result.verdict == "healthy"
    (path / "latest").write_text("global_step6")
    assert "global_step6 is missing" in scan([tmp_path]).findings[0].evidence[0]


def test_loose_files_with_steps_in_their_names_are_a_checkpoint_each(tmp_path):
    for step in (100, 200):
        torch.save({"state_dict": weights(), "global_step": step}, tmp_path / f"epoch=0-step={step}.ckpt")
    torch.save({"model": weights(), "iter_num": 300}, tmp_path / "ckpt.pt")
    (tmp_path / "train.bin").write_bytes(bytes(range(256)) * 10)
    result = scan([tmp_path])
    assert [each.facts.step for each in result.checkpoints] == [100, 200, 300]
    assert result.verdict == "healthy"
