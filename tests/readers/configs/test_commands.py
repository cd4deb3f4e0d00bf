"""Command lines and the shell scripts that hold them."""

import pytest

from stayfinite.core.settings import Expression
from stayfinite.readers.configs import read_config
from stayfinite.readers.configs.commands import looks_like_command, settings_of_command

COMMANDS = {
    "accelerate launch --mixed_precision fp16 train.py --learning_rate 1e-4 --fp16": {
        "--mixed_precision": "fp16",
        "script": "train.py",
        "--learning_rate": 1e-4,
        "--fp16": True,
    },
    "torchrun --standalone --nproc_per_node=8 train.py config/train_gpt2.py --batch_size=32 --compile=False --no-amp": {
        "--standalone": True,
        "--nproc_per_node": 8,
        "script": "train.py",
        "config": "config/train_gpt2.py",
        "--batch_size": 32,
        "--compile": False,
        "--amp": False,
    },
    "deepspeed --num_gpus 4 run.py --deepspeed ds_z2.json --bf16 true --x -1": {
        "--num_gpus": 4,
        "script": "run.py",
        "--deepspeed": "ds_z2.json",
        "--bf16": True,
        "--x": -1,
    },
    "python -m foo.train model.lr=3e-4 ++trainer.precision=16-mixed +x=null ~callbacks 'betas=[0.9,0.95]'": {
        "module": "foo.train",
        "model.lr": 3e-4,
        "trainer.precision": "16-mixed",
        "x": None,
        "betas": [0.9, 0.95],
    },
    "CUDA_VISIBLE_DEVICES=0,1 NCCL_DEBUG=1 python3 tools/train.py configs/fcos.py --cfg-options opt.lr=0.01": {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_DEBUG": 1,
        "script": "tools/train.py",
        "config": "configs/fcos.py",
        "opt.lr": 0.01,
    },
    "fairseq-train data-bin --arch transformer --adam-betas '(0.9, 0.98)' --lr 5e-4 --fp16 --max-tokens 99 data-bin": {
        "--arch": "transformer",
        "--adam-betas": [0.9, 0.98],
        "--lr": 5e-4,
        "--fp16": True,
        "--max-tokens": 99,
    },
    "python pretrain_gpt.py --betas 0.9 0.95 --target_modules q_proj v_proj --memory-efficient-fp16 data": {
        "--betas": [0.9, 0.95],
        "--target_modules": ["q_proj", "v_proj"],
        "--memory-efficient-fp16": True,
    },
    "python train.py --lr 1e-3 | tee log.txt --fp16": {"--lr": 1e-3, "--fp16": "(absent)"},
    "$ python train.py --lr=1e-3 > log --fp16": {"--lr": 1e-3, "--fp16": "(absent)"},
    "llamafactory-cli train examples/qwen.yaml fp16=true": {"config": "examples/qwen.yaml", "fp16": True},
    'python train.py --name "a b" --prompt="it\'s" --lr $LR': {
        "--name": "a b",
        "--prompt": "it's",
        "--lr": Expression("$LR"),
    },
    "onmt_train -data data/demo -optim adam -learning_rate 2 -fp32": {
        "-data": "data/demo",
        "-optim": "adam",
        "-learning_rate": 2,
        "-fp32": True,
    },
    "python -m torch.distributed.launch --nproc_per_node 2 train.py --amp": {
        "module": "torch.distributed.launch",
        "--nproc_per_node": 2,
        "script": "train.py",
        "--amp": True,
    },
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_what_the_program_is_told(command):
    assert looks_like_command(command)
    found = {setting.name: setting.value for setting in settings_of_command(command, "log", 3)}
    expected = COMMANDS[command]
    assert {name: found.get(name, "(absent)") for name in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "python is a language",
        "I ran python and it failed",
        "accelerate the training",
        "loss: 0.3 --- best so far",
        "swift is fast",
        "fp16: true",
        "",
    ],
)
def test_a_sentence_is_no_command(text):
    assert not looks_like_command(text)


SCRIPT = r"""#!/bin/bash
#SBATCH --gres=gpu:4
export NCCL_DEBUG=INFO
LR=1e-4
MODEL=${1:-google/mt5-base}
GPT_ARGS="
    --num-layers 24 \
    --fp16
"
ARGS=(
  --bf16   # on A100
  --seed 42
)
OUT=$(date)
cat > ds.json <<EOT
{
 "fp16": {"enabled": true},
 "zero_optimization": {"stage": 2, "overlap_comm": true}
}
EOT
echo "use --no-fp16 if it fails"
CUDA_VISIBLE_DEVICES=0,1 accelerate launch --multi_gpu --mixed_precision fp16 train.py \
   --learning_rate $LR --model $MODEL --out $OUT \
   $GPT_ARGS "${ARGS[@]}" > log.txt 2>&1
"""


def test_a_shell_script_is_read_with_its_variables_arrays_and_written_files(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT)
    settings = read_config(path)
    found = {setting.name: (setting.value, setting.line) for setting in settings}
    expected = {
        "--gres": ("gpu:4", 2),
        "NCCL_DEBUG": ("INFO", 3),
        "LR": (1e-4, 4),
        "--num-layers": (24, 7),
        "--fp16": (True, 8),
        "--bf16": (True, 11),
        "--seed": (42, 12),
        "fp16.enabled": (True, 17),
        "zero_optimization.overlap_comm": (True, 18),
        "--mixed_precision": ("fp16", 22),
        "script": ("train.py", 22),
        "--learning_rate": (1e-4, 23),
        "--model": ("google/mt5-base", 23),
    }
    assert {name: found.get(name) for name in expected} == expected
    assert isinstance(settings.find("out").value, Expression)
    assert settings.value("fp16") is True
    assert any("accelerate launch" in text for _, text in settings.notes)
    assert all(setting.kind in {"command", "file"} for setting in settings)


def test_variables_of_the_same_line_and_their_defaults_are_put_in():
    found = settings_of_command("LR=1e-4; python t.py --lr $LR --model ${MODEL:-t5-base} --x ${Y} && echo done", "c")
    values = {setting.name: setting.value for setting in found}
    assert (values["--lr"], values["--model"]) == (1e-4, "t5-base")
    assert isinstance(values["--x"], Expression)


def test_the_next_command_is_no_value_of_the_last_option():
    found = settings_of_command("python t.py --name a; echo b", "c")
    assert {setting.name: setting.value for setting in found}["--name"] == "a"
