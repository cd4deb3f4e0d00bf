"""Runs with a fault of optimization, and runs that look alike and have none of it."""

from rules.example import Example
from rules.post_training_logs import dpo, growth, grpo, level, openrlhf, ramp, reward_model, verl

STEADY = "\n".join(
    f"step: {10 * i} loss: {2.9 - 0.03 * i:.4f} grad_norm: {1.1 + 0.02 * (i % 4):.3f} lr: {1e-4 * (1 - i / 60):.3e}"
    for i in range(40)
)

FLAT = "\n".join(f"step: {10 * i} loss: {2.3026 + 0.0003 * (i % 3):.4f} grad_norm: 0.72 lr: {{lr}}" for i in range(30))

CLIMBING = (1.92, 1.90, 1.95, 2.4, 3.8, 9.7, 41.2, 530.0)

EXPLODES = (
    "".join(
        f"step: {20 * (i + 1)} loss: {loss} grad_norm: {1.2 * loss**1.5:.3f} lr: {{lr}}\n"
        for i, loss in enumerate(CLIMBING)
    )
    + "step: 180 loss: nan grad_norm: nan lr: {lr}\nstep: 200 loss: nan grad_norm: nan lr: {lr}\n"
)

LOOP = """
scaler = torch.amp.GradScaler("cuda")
with torch.autocast("cuda", dtype=torch.float16):
    loss = criterion(model(x), y)
scaler.scale(loss).backward()
{middle}
scaler.step(optimizer)
scaler.update()
optimizer.zero_grad()
"""

PLAIN_LOOP = (
    "for x, y in loader:\n    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n{after}"
)

CREEPING = "".join(f"step: {i} loss: {2.0 + 0.3 * abs(i - 4):.3f} grad_norm: {0.9 * (i + 1):.2f}\n" for i in range(24))

EXAMPLES: dict[str, tuple[Example, Example]] = {
    "lr-too-high": (
        Example(log=EXPLODES.format(lr="1.0e-02"), config="optimizer: AdamW\nlr: 0.01\nmodel: vit_small\n"),
        Example(
            log="step: 1 loss: nan grad_norm: nan lr: 1.0e-04\nstep: 2 loss: nan grad_norm: nan lr: 1.0e-04\n",
            config="optimizer: AdamW\nlr: 1e-4\nloss: torch.log(prob) with probabilities of exactly 0\n",
        ),
    ),
    "lr-zero": (
        Example(
            log="\n".join(
                f"{{'loss': {2.1 + 0.05 * (i % 4):.3f}, 'grad_norm': 1.3, 'learning_rate': 0.0, 'epoch': {i / 10}}}"
                for i in range(8)
            ),
            config="num_train_epochs: 3\nlr_scheduler_type: linear\n",
        ),
        Example(
            log="\n".join(
                f"{{'loss': {3.0 - 0.1 * i:.3f}, 'grad_norm': 1.3, 'learning_rate': {1e-6 * i}, 'epoch': {i / 10}}}"
                for i in range(8)
            ),
            config="warmup_steps: 100\n",
        ),
    ),
    "lr-schedule-bug": (
        Example(
            log=(
                "epoch 9 step 999 loss 0.41 lr 4.0e-09\n"
                "ValueError: Tried to step 1001 times. The specified number of total steps is 1000\n"
            ),
            config="scheduler: OneCycleLR\nmax_lr: 1e-3\n",
        ),
        Example(
            log="".join(
                f"step: {i} loss: {2.0 - 0.02 * i:.3f} lr: {lr:.2e}\n"
                for i, lr in enumerate([1e-3, 8e-4, 5e-4, 2e-4, 1e-5] * 4)
            ),
            config="scheduler: cosine with restarts\nlr: 1e-3\n",
        ),
    ),
    "lr-too-low": (
        Example(log=FLAT.format(lr="1.0e-08"), config="learning_rate: 1e-8\noptimizer: adamw\n"),
        Example(log=STEADY, config="learning_rate: 1e-4\noptimizer: adamw\n"),
    ),
    "no-warmup": (
        Example(
            log=(
                "step: 10 loss: 6.91 lr: 3.0e-04\nstep: 20 loss: 6.84 lr: 3.0e-04\n"
                "step: 30 loss: nan lr: 3.0e-04\nstep: 40 loss: nan lr: 3.0e-04\n"
            ),
            config=(
                "optimizer: AdamW\nlearning_rate: 3e-4\nwarmup_steps: 0\n"
                "model: post-norm transformer encoder, from scratch\nbf16: true\n"
            ),
        ),
        Example(log=STEADY, config="optimizer: AdamW\nwarmup_steps: 0\n"),
    ),
    "no-clipping": (
        Example(
            log="".join(
                f"step: {100 + i} loss: {1.9 - 0.001 * i:.3f} grad_norm: {1 + 0.1 * (i % 3):.2f}\n" for i in range(60)
            )
            + "step: 160 loss: 1.88 grad_norm: 412.0\n"
            + "step: 161 loss: nan grad_norm: nan\nstep: 162 loss: nan grad_norm: nan\n",
            config="model: lstm language model\nmax_grad_norm: 0\nfp32: true\nlr: 1e-3\n",
        ),
        Example(log=STEADY, config="max_grad_norm: 0\n"),
    ),
    "clip-before-unscale": (
        Example(
            log="\n".join(
                f"step: {i} loss: {2.3 - 0.001 * i:.4f} grad_norm: {40960 + 13 * (i % 7):.1f}" for i in range(30)
            ),
            config=LOOP.format(middle="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
        ),
        Example(
            log=STEADY,
            config=LOOP.format(
                middle="scaler.unscale_(optimizer)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
            ),
        ),
    ),
    "no-zero-grad": (
        Example(log=CREEPING, config=PLAIN_LOOP.format(after="")),
        Example(log=CREEPING, config=PLAIN_LOOP.format(after="    optimizer.zero_grad()\n")),
    ),
    "double-step": (
        Example(
            log="RuntimeError: unscale_() has already been called on this optimizer since the last update().\n",
            config="use_amp: true\naccumulate: 4\n",
        ),
        Example(log=STEADY, config=PLAIN_LOOP.format(after="    optimizer.zero_grad()\n")),
    ),
    "accumulation-unscaled": (
        Example(
            log="\n".join(
                f"{{'loss': {16.4 - 0.05 * i:.3f}, 'grad_norm': {18.2 - 0.1 * i:.2f}, 'learning_rate': 2e-05}}"
                for i in range(12)
            )
            + "\n{'eval_loss': 2.02, 'epoch': 0.5}\n{'eval_loss': 2.0, 'epoch': 1.0}\n",
            config="gradient_accumulation_steps: 8\nper_device_train_batch_size: 2\nbf16: true\n",
        ),
        Example(
            log="\n".join(
                f"{{'loss': {2.1 - 0.005 * i:.3f}, 'grad_norm': 1.8, 'learning_rate': 2e-05}}" for i in range(12)
            )
            + "\n{'eval_loss': 2.02, 'epoch': 0.5}\n{'eval_loss': 2.0, 'epoch': 1.0}\n",
            config="gradient_accumulation_steps: 8\nper_device_train_batch_size: 2\nbf16: true\n",
        ),
    ),
    "params-not-in-optimizer": (
        Example(
            log='  File "torch/optim/adamw.py", line 50, in __init__\n'
            "ValueError: optimizer got an empty parameter list\n",
            config="optimizer = AdamW([p for n, p in model.named_parameters() if 'adapter' in n])\n",
        ),
        Example(log=STEADY, config="optimizer = AdamW(model.parameters())\n"),
    ),
    "decay-only-updates": (
        Example(
            log="\n".join(f"step: {i} loss: {1.7 + 0.01 * (i % 4):.3f} lr: 1.0e-03" for i in range(10)),
            config="weight_decay: 0.1\n",
            observed={"update.without_gradient": ["head.weight", "head.bias"]},
        ),
        Example(log=STEADY, config="weight_decay: 0.1\n", observed={"update.without_gradient": []}),
    ),
    "toxic-batch": (
        Example(
            log="".join(
                f"step: {i} loss: {2.1 - 0.002 * i:.3f} grad_norm: {0.9 + 0.01 * (i % 5):.2f}\n" for i in range(80)
            )
            + "step: 80 loss: 19.3 grad_norm: 88.0\n"
            + "".join(f"step: {i} loss: {2.6 - 0.002 * (i - 80):.3f} grad_norm: 1.1\n" for i in range(81, 100)),
            config="bf16: true\nmodel: decoder, 1B parameters\n",
            observed={"worlds.good_weights.spikes": True},
        ),
        Example(log=STEADY, config="bf16: true\n", observed={"worlds.good_weights.spikes": False}),
    ),
    "grpo-zero-advantage": (
        Example(
            log="\n".join(
                f"{{'loss': 0.0, 'grad_norm': 0.0, 'learning_rate': 1e-06, 'reward': 1.0, 'reward_std': 0.0, "
                f"'frac_reward_zero_std': 1.0, 'epoch': {i / 100}}}"
                for i in range(5)
            ),
            config="trainer: GRPOTrainer\nnum_generations: 4\ntemperature: 0.1\n",
        ),
        Example(
            log="\n".join(
                f"{{'loss': 0.0, 'grad_norm': 0.21, 'learning_rate': 1e-06, 'reward': 0.6, 'reward_std': 0.31, "
                f"'frac_reward_zero_std': 0.25, 'epoch': {i / 100}}}"
                for i in range(5)
            ),
            config="trainer: GRPOTrainer\nnum_generations: 8\ntemperature: 1.0\n",
        ),
    ),
    "loss-diverging": (
        Example(
            log="".join(
                f"step: {50 * i} loss: {loss:.3f} lr: 5e-07\n"
                for i, loss in enumerate([0.62] * 10 + [0.6 + 0.09 * j for j in range(30)])
            ),
            config="phase: second stage of the curriculum, other data from step 500 on\n",
        ),
        Example(log=STEADY),
    ),
    "loss-collapse": (
        Example(log=FLAT.replace(" grad_norm: 0.72 lr: {lr}", ""), config="task: image classification, 10 classes\n"),
        Example(log=STEADY),
    ),
    "config-contradiction": (
        Example(
            log="ValueError: --load_best_model_at_end requires the save and eval strategy to match, but found\n"
            "- Evaluation strategy: IntervalStrategy.NO\n- Save strategy: IntervalStrategy.STEPS\n"
        ),
        Example(log=STEADY, config="load_best_model_at_end: true\nsave_strategy: steps\neval_strategy: steps\n"),
    ),
    "unknown-setting": (
        Example(log="usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --learing_rate 1e-4\n"),
        Example(log=STEADY, config="learing_rate: 1e-4\n"),
    ),
    "params-twice": (
        Example(observed={"optimizer.twice": ["shared.weight"]}),
        Example(observed={"optimizer.twice": []}),
    ),
    "cannot-overfit-batch": (
        Example(observed={"learning.falls": False, "optimizer.lr": 1e-3}),
        Example(observed={"learning.falls": False, "learning.falls_at": 0.01, "optimizer.lr": 1e-3}),
    ),
    "cleared-before-step": (
        Example(observed={"optimizer.steps_without_gradient": 40}),
        Example(observed={"optimizer.steps_without_gradient": 0}),
    ),
    "step-missing": (
        Example(observed={"optimizer.call_missing": "backward ran 40 times, and no optimizer took a step"}),
        Example(observed={"optimizer.call_missing": ""}),
    ),
    "target-out-of-step": (
        Example(observed={"model.copy_out_of_step": "ema_model has the first weights of the model after 500 steps"}),
        Example(observed={"model.copy_out_of_step": ""}),
    ),
}

EXAMPLES |= {
    "kl-runaway": (
        Example(log=verl(kl=growth(0.002, 40.0), reward=ramp(0.5, 0.02))),
        Example(log=verl(kl=lambda t: 0.7 * min(1.0, 3 * t))),
    ),
    "entropy-collapse": (
        Example(log=grpo(entropy=growth(0.6, 0.003), reward=level(0.4))),
        Example(log=grpo(entropy=growth(0.6, 0.003), reward=ramp(0.1, 0.98))),
    ),
    "length-hacking": (
        Example(log=openrlhf(length=ramp(300, 1000), cut_off=ramp(0.01, 0.7))),
        Example(log=openrlhf(length=ramp(300, 1000))),
    ),
    "reward-on-truncated": (
        Example(log=grpo(length=ramp(300, 1000), cut_off=ramp(0.01, 0.9), reward=level(0.5))),
        Example(log=grpo(cut_off=ramp(0.9, 0.1), length=ramp(900, 400))),
    ),
    "ratio-explosion": (Example(log=verl(clipped=ramp(0.01, 0.8))), Example(log=verl(clipped=level(0.6)))),
    "sampler-mismatch": (Example(log=grpo(mismatch=level(0.4))), Example(log=grpo(mismatch=level(0.03)))),
    "dpo-both-fall": (
        Example(log=dpo(lambda t: -120 - 300 * t, lambda t: -130 - 700 * t)),
        Example(log=dpo(ramp(-120, -140), ramp(-130, -210))),
    ),
    "value-explains-nothing": (
        Example(log=verl(explained=level(0.001), value_loss=level(0.5))),
        Example(log=verl(explained=lambda t: t - 0.4)),
    ),
    "reward-model-constant": (
        Example(log=reward_model(spread=0.0)),
        Example(log=reward_model(spread=0.02)),
    ),
    "reward-falls": (
        Example(log=openrlhf(reward=ramp(0.6, 0.05))),
        Example(log=openrlhf(reward=lambda t: 0.6 - 0.1 * (t > 0.5))),
    ),
    "beta-out-of-scale": (
        Example(observed={"plan.beta": [("DPOConfig.beta: 10.0: a difference of 0.2 nats saturates", "a.py:4")]}),
        Example(log=grpo(), config="beta: 0.0\n"),
    ),
    "reference-moves": (
        Example(log=grpo(kl=level(0.0))),
        Example(log=openrlhf(kl=level(0.0)).replace("'logprobs_diff': 0.0011", "'logprobs_diff': 0.0")),
    ),
}
