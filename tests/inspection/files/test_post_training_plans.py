"""`stayfinite check` on plans of reinforcement and preference training: planted faults, and look-alikes in peace."""

from __future__ import annotations

from pathlib import Path

import pytest

from stayfinite.inspection.files.inspecting import inspect_files

GRPO = """
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(output_dir="o", bf16=True, {more})
GRPOTrainer(model="Qwen/Qwen2.5-1.5B-Instruct", reward_funcs=reward, args=args, train_dataset=data).train()
"""
GRPO_LORA = GRPO.replace("train_dataset=data", "train_dataset=data, peft_config=LoraConfig(r=16)")
DPO = """
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct")
args = DPOConfig(output_dir="o", learning_rate=5e-7, bf16=True, {more})
DPOTrainer(model=model, {reference}args=args, train_dataset=data).train()
"""
VERL = """
python3 -m verl.trainer.main_ppo algorithm.adv_estimator={estimator} data.train_files=$HOME/data/gsm8k/train.parquet \\
    data.train_batch_size=1024 data.max_prompt_length=512 data.max_response_length={length} \\
    actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct actor_rollout_ref.actor.optim.lr={lr} \\
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef={kl} \\
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n={n} \\
    actor_rollout_ref.rollout.val_kwargs.n=1 actor_rollout_ref.rollout.val_kwargs.temperature=0 \\
    actor_rollout_ref.rollout.temperature={temperature} trainer.total_epochs=15
"""
USUAL = {"estimator": "grpo", "length": 1024, "lr": "1e-6", "kl": 0.001, "n": 5, "temperature": 1.0}
ARRAYS = """
lr=1e-6
ALGORITHM=(
    algorithm.adv_estimator=grpo
    # algorithm.adv_estimator=gae  (with a "critic")
    algorithm.use_kl_in_reward=False
)
ACTOR=(
    actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct
    actor_rollout_ref.actor.optim.lr=${{lr}}
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((2 * (1024 + 1024)))
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef={kl}
)
python3 -m verl.trainer.main_ppo "${{ALGORITHM[@]}}" "${{ACTOR[@]}}"
"""
OPENRLHF = """
ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray \\
   --actor.model_name_or_path Qwen/Qwen2.5-7B-Instruct --rollout.n_samples_per_prompt {n} \\
   --eval.n_samples_per_prompt 1 --eval.temperature 0 --rollout.max_new_tokens 1024 \\
   --algo.advantage.estimator group_norm --algo.kl.init_coef {kl} --actor.adam.lr 5e-7 --train.max_epochs 1
"""
OPENRLHF_DPO = """
read -r -d '' training_commands <<EOF
openrlhf.cli.train_dpo \\
   --model.model_name_or_path meta-llama/Llama-3.1-8B \\
   --ds.param_dtype bf16 --adam.lr 5e-7 \\
   --model.beta {beta}
EOF
deepspeed --module $training_commands
"""
SLURM = """
srun --nodes=1 -w "$node" bash -c \\
"pip install ray \\
&& ray job submit --runtime-env-json='{{\\"working_dir\\": \\"/job\\"}}' \\
    -- python3 -m openrlhf.cli.train_ppo_ray \\
    --actor.model_name_or_path meta-llama/Llama-3.1-8B \\
    --actor.adam.lr 5e-7 --critic.adam.lr {critic} \\
    --algo.kl.init_coef 0.01" &>> log
"""
LOOP = """
import copy, torch
model = load("policy")
{reference}
optimizer = torch.optim.AdamW({parameters}, lr=1e-6)
for batch in loader:
    loss = policy_loss(model, ref_model, batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
END = """
from transformers import AutoTokenizer, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("facebook/opt-350m")
{padding}
def encode(row):
    batch = tokenizer(row["question"] + row["answer"]{end}, padding="max_length", max_length=512, truncation=True)
    labels = torch.tensor(batch["input_ids"])
    {mask}
    return batch | {{"labels": labels}}
Trainer(model=model, args=TrainingArguments("o", learning_rate=1e-5), train_dataset=data.map(encode)).train()
"""
PPO = """
import torch
from trl import AutoModelForCausalLMWithValueHead
model = AutoModelForCausalLMWithValueHead.from_pretrained("policy")
optimizer = torch.optim.AdamW({parameters}, lr=1e-6)
for batch in loader:
    loss = policy_loss(model, batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def verl(*more: str, **changed: object) -> str:
    return VERL.format(**USUAL | changed).replace("trainer.total_epochs=15", " ".join(more))


def openrlhf(*more: str, kl: float = 0.01) -> str:
    return OPENRLHF.format(n=8, kl=kl).replace("--train.max_epochs 1", " ".join(more))


SHARES = (
    "actor_rollout_ref.actor.ppo_mini_batch_size=16 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={micro} "
    "trainer.n_gpus_per_node=8 trainer.nnodes=1"
)
A, R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
OTHER_MODEL = GRPO.replace("Qwen/Qwen2.5-1.5B-Instruct", "openai-community/gpt2")
SAME_PADDING = "tokenizer.pad_token = tokenizer.eos_token"
BY_ID = "labels[labels == tokenizer.pad_token_id] = -100"
BY_POSITION = "labels[batch['attention_mask'] == 0] = -100"
ADDED = " + tokenizer.eos_token"

SICK = [
    ("grpo-zero-advantage", "a.py", GRPO.format(more="num_generations=1"), "single answer"),
    ("grpo-zero-advantage", "a.py", GRPO.format(more="temperature=0.0"), "are identical"),
    ("grpo-zero-advantage", "a.sh", verl(n=1), "rollout.n: 1: a single answer has no group; verl uses its raw reward"),
    ("grpo-zero-advantage", "a.sh", verl(n=1, estimator="reinforce_plus_plus_baseline"), "single answer"),
    ("grpo-zero-advantage", "a.sh", VERL.format(**USUAL | {"temperature": 0}), "are identical"),
    ("grpo-zero-advantage", "a.sh", OPENRLHF.format(n=1, kl=0.01), "rollout.n_samples_per_prompt: 1"),
    ("lr-too-high", "a.py", GRPO.format(more="learning_rate=1e-4"), "full-model"),
    ("lr-too-high", "a.sh", VERL.format(**USUAL | {"lr": "2e-4"}), "full-model"),
    ("sampler-mismatch", "a.py", GRPO.format(more="generation_kwargs={'temperature': 0.6}"), "uses temperature 1"),
    ("sampler-mismatch", "a.py", OTHER_MODEL.format(more="learning_rate=1e-6"), "keeps it on"),
    ("params-not-in-optimizer", "a.py", PPO.format(parameters="model.pretrained_model.parameters()"), "value head"),
    ("beta-out-of-scale", "a.py", DPO.format(more="beta=10.0", reference=""), "0.2 nats"),
    ("beta-out-of-scale", "a.py", DPO.format(more="beta=1e-6", reference=""), "no KL term keeps"),
    ("beta-out-of-scale", "a.py", GRPO.format(more="beta=10.0"), "outweighs"),
    ("beta-out-of-scale", "a.sh", VERL.format(**USUAL | {"kl": 10}), "kl_loss_coef: 10"),
    ("beta-out-of-scale", "a.sh", OPENRLHF.format(n=8, kl=10), "init_coef: 10"),
    ("beta-out-of-scale", "a.yaml", "base_model: meta-llama/Llama-3.1-8B\nrl: dpo\nbeta: 50\nlr: 1e-6\n", "saturate"),
    ("generation-too-short", "a.sh", VERL.format(**USUAL | {"length": 64}), "reasoning is truncated"),
    ("beta-out-of-scale", "a.sh", verl(kl=-0.001), "rewards distance"),
    ("beta-out-of-scale", "a.sh", verl("algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.kl_coef=3"), "kl_coef: 3"),
    ("beta-out-of-scale", "a.sh", ARRAYS.format(kl=10), "kl_loss_coef: 10"),
    ("beta-out-of-scale", "a.sh", OPENRLHF_DPO.format(beta=50), "--model.beta: 50"),
    ("config-contradiction", "a.sh", verl(f"{A}.clip_ratio=0"), "clip_ratio: 0: ratios are clipped to 1"),
    ("config-contradiction", "a.sh", verl(f"{A}.clip_ratio_low=0.2 {A}.clip_ratio_high=0.0"), "clip_ratio_high: 0.0"),
    ("config-contradiction", "a.sh", openrlhf("--actor.eps_clip_low_high 0 0"), "eps_clip_low_high"),
    ("config-contradiction", "a.py", GRPO.format(more="epsilon=0.0"), "GRPOConfig.epsilon: 0.0"),
    ("config-contradiction", "a.sh", verl(estimator="gae", temperature=0), "divides logits"),
    ("config-contradiction", "a.sh", verl(SHARES.format(micro=16)), "x n 5 over 8 GPUs is 10 answers per GPU"),
    ("ratio-explosion", "a.sh", verl(f"{A}.clip_ratio_high=1000", kl=0), "there is no KL term"),
    ("ratio-explosion", "a.sh", openrlhf("--actor.eps_clip 1000", kl=0), "eps_clip: 1000"),
    ("ratio-explosion", "a.py", GRPO.format(more="epsilon_high=1000.0"), "epsilon_high: 1000"),
    ("sampler-mismatch", "a.sh", verl(f"{R}.dtype=float16"), "the sampler computes in fp16, the training pass in bf16"),
    ("sampler-mismatch", "a.sh", verl(f"{A}.fsdp_config.dtype=float16"), "the sampler computes in bf16"),
    ("pure-fp16-weights", "a.sh", verl(f"{A}.fsdp_config.model_dtype=fp16"), "trained directly"),
    ("lr-too-high", "a.sh", verl("critic.optim.lr=1.0", estimator="gae"), "critic.optim.lr: 1.0"),
    ("lr-too-high", "a.sh", SLURM.format(critic=1), "--critic.adam.lr: 1"),
    ("reference-moves", "a.py", DPO.format(more="beta=0.1", reference="ref_model=model, "), "is the policy"),
    ("reference-moves", "a.py", LOOP.format(reference="ref_model = model", parameters="model.parameters()"), "names"),
    (
        "reference-moves",
        "a.py",
        LOOP.format(
            reference="ref_model = copy.deepcopy(model)",
            parameters="[*model.parameters(), *ref_model.parameters()]",
        ),
        "trains the reference",
    ),
    ("eos-never-learned", "a.py", END.format(padding=SAME_PADDING, end=ADDED, mask=BY_ID), "is masked"),
]

HEALTHY = {
    "GRPO": GRPO.format(more="learning_rate=1e-6, num_generations=8, temperature=0.9, beta=0.04"),
    "GRPO without a reference": GRPO.format(more="learning_rate=5e-6, beta=0.0"),
    "GRPO with LoRA at a rate of its own": GRPO_LORA.format(more="learning_rate=1e-4"),
    "GRPO with its temperature twice": GRPO.format(more="temperature=0.6, generation_kwargs={'temperature': 0.6}"),
    "GRPO on short answers": GRPO.format(more="max_completion_length=16"),
    "PPO with one answer a prompt": VERL.format(**USUAL | {"estimator": "gae", "n": 1}),
    "dropout turned off": OTHER_MODEL.format(more="disable_dropout=True"),
    "DPO turns dropout off by itself": DPO.replace("Qwen/Qwen2.5-1.5B-Instruct", "gpt2").format(more="", reference=""),
    "a value head in the optimizer": PPO.format(parameters="model.parameters()"),
    "a value head with a rate of its own": PPO.format(
        parameters="[*model.pretrained_model.parameters(), *model.v_head.parameters()]"
    ),
    "verl": verl(),
    "verl without KL, as in DAPO": verl(f"{A}.clip_ratio_low=0.2 {A}.clip_ratio_high=0.28", kl=0),
    "verl, GSPO's narrow clip": verl(f"{A}.clip_ratio_low=0.0003 {A}.clip_ratio_high=0.0004"),
    "verl, CISPO clips below at 10": verl(f"{A}.clip_ratio_low=10 {A}.clip_ratio_high=0.2", kl=0),
    "verl, a KL term in place of the clip": verl(f"{A}.clip_ratio=1000"),
    "verl, a coefficient that is switched off": verl("algorithm.use_kl_in_reward=False algorithm.kl_ctrl.kl_coef=3"),
    "verl, both sides in fp16": verl(f"{A}.fsdp_config.dtype=float16 {R}.dtype=float16"),
    "verl, a router in fp32": verl(f"+{A}.megatron.override_transformer_config.moe_router_dtype=fp32"),
    "verl, a reference in fp16": verl("actor_rollout_ref.ref.fsdp_config.model_dtype=fp16"),
    "verl, settings in arrays": ARRAYS.format(kl=0.001),
    "verl, a mini-batch that is shared": verl(SHARES.format(micro=5)),
    "verl, micro-batches by tokens": verl(SHARES.format(micro=16), f"{A}.use_dynamic_bsz=True"),
    "verl, PPO with a critic": verl("critic.optim.lr=1e-5", estimator="gae"),
    "OpenRLHF by slurm": SLURM.format(critic="9e-6"),
    "OpenRLHF's DPO": OPENRLHF_DPO.format(beta=0.1),
    "OpenRLHF, two bounds": openrlhf("--actor.eps_clip_low_high 0.2 0.27", kl=0),
    "OpenRLHF": OPENRLHF.format(n=8, kl=0.001),
    "OpenRLHF without a reference": OPENRLHF.format(n=8, kl=0),
    "DPO": DPO.format(more="beta=0.1", reference=""),
    "DPO with a reference of its own": DPO.format(more="beta=0.5", reference="ref_model=reference, "),
    "IPO has a beta of its own": DPO.format(more="beta=10.0, loss_type='ipo'", reference=""),
    "Adam's betas": "optimizer: AdamW\nbeta: 10\nlr: 1e-4\n",
    "a loop with a copy": LOOP.format(reference="ref_model = copy.deepcopy(model)", parameters="model.parameters()"),
    "masked by position": END.format(padding=SAME_PADDING, end=ADDED, mask=BY_POSITION),
    "no end added": END.format(padding=SAME_PADDING, end="", mask=BY_ID),
    "padding of its own": END.format(padding="tokenizer.pad_token = '<pad>'", end=ADDED, mask=BY_ID),
}


@pytest.mark.parametrize(("cause", "name", "text", "says"), SICK, ids=[f"{s[0]}-{s[3]}" for s in SICK])
def test_a_planted_fault_is_found_with_its_place_and_fix(
    cause: str, name: str, text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    found = inspect_files([name])
    assert [finding.cause for finding in found.findings] == [cause]
    finding = found.findings[0]
    assert says in "; ".join(finding.evidence)
    assert finding.where.startswith(f"{name}:")
    assert [line.code for line in found.lines if line.status in ("warn", "fail")] == [finding.code]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_plan_that_works_is_left_in_peace(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = HEALTHY[name]
    file = Path("a.py" if "import" in text else "a.sh" if "-m" in text else "a.yaml")
    file.write_text(text)
    assert inspect_files([str(file)]).findings == []
