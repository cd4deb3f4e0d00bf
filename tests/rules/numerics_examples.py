"""Runs with a fault of the loss or of the model's numerics, and runs that look alike and have none of it."""

from rules.example import Example

FALLING = "\n".join(
    f"step {10 * i} | loss {2.3 - 0.05 * i:.4f} | grad_norm {0.9 + 0.01 * (i % 3):.3f}" for i in range(20)
)
SUDDEN = (
    "step 410 | loss 0.3120 | grad_norm 0.641\nstep 420 | loss 0.3088 | grad_norm 0.598\n"
    "step 430 | loss 0.3101 | grad_norm 0.655\nstep 440 | loss 0.2992 | grad_norm nan\nstep 450 | loss nan | "
    "grad_norm nan\n"
)
FROM_START = "step 0 | loss nan | grad_norm nan\nstep 1 | loss nan | grad_norm nan\nstep 2 | loss nan | grad_norm nan\n"
STUCK = "\n".join(f"epoch {i} train loss: {1.4902 - 0.0003 * i:.4f}" for i in range(12))

EXAMPLES: dict[str, tuple[Example, Example]] = {
    "loss-formula-singularity": (
        Example(
            log="RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.\n",
            config="precision: fp32\nloss: torch.sqrt(((a - b) ** 2).sum(-1)).mean()\n",
        ),
        Example(log=FALLING, config="loss: torch.sqrt(((a - b) ** 2).sum(-1) + 1e-6).mean()\n"),
    ),
    "where-nan-branch": (
        Example(
            log="RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.\n",
            config="r = torch.where(d > 0, torch.sqrt(d), torch.zeros_like(d))\n",
        ),
        Example(
            log=FALLING,
            config="r = torch.where(d > 0, torch.sqrt(d), torch.zeros_like(d))\n",
        ),
    ),
    "attention-fully-masked-row": (
        Example(
            log="RuntimeError: Function 'SoftmaxBackward0' returned nan values in its 0th output.\n",
            config="scores = scores.masked_fill(mask, float('-inf'))\nnote: some batches contain an empty sequence\n",
        ),
        Example(log=FALLING, config="scores = scores.masked_fill(mask, float('-inf'))\n"),
    ),
    "naive-exp": (
        Example(
            log="RuntimeWarning: overflow encountered in exp\n" + SUDDEN,
            config="precision: fp32\nw = torch.exp(score / tau)\n",
        ),
        Example(log=FALLING, config="w = torch.exp(score - score.max())\n"),
    ),
    "softmax-before-cross-entropy": (
        Example(
            log=STUCK,
            config="num_classes: 10\nout = F.softmax(self.fc(x), dim=1)\nloss = F.cross_entropy(out, y)\n",
        ),
        Example(log=FALLING, config="num_classes: 10\nloss = F.cross_entropy(self.fc(x), y)\n"),
    ),
    "probability-loss-on-logits": (
        Example(
            log="../aten/src/ATen/native/cuda/Loss.cu:115: operator(): block: [0,0,0], thread: [7,0,0] Assertion "
            "`input_val >= zero && input_val <= one` failed.\nRuntimeError: CUDA error: device-side assert triggered\n",
            config="criterion: nn.BCELoss()\n",
        ),
        Example(log=FALLING, config="criterion: nn.BCEWithLogitsLoss()\n"),
    ),
    "wrong-reduction": (
        Example(
            log="RuntimeError: grad can be implicitly created only for scalar outputs\n", config="reduction: none\n"
        ),
        Example(log=FALLING, config="criterion: nn.MSELoss(reduction='mean')\n"),
    ),
    "flipped-sign": (
        Example(
            log="\n".join(f"step {i} loss: {-(3.0**i):.3f}" for i in range(10)),
            config="loss = -F.cross_entropy(logits, y)\n",
        ),
        Example(
            log="\n".join(f"step {i} loss: {-8.0 - 0.6 * i + 0.02 * i * i:.3f}" for i in range(12)),
            config="loss: negative SI-SNR in decibels\n",
        ),
    ),
    "softmax-axis": (
        Example(
            log="\n".join(f"epoch {i} loss: 2.3026" for i in range(25)),
            config="probs = torch.softmax(scores, dim=0)\n",
            observed={"softmax.rows_sum_to_one": False},
        ),
        Example(log=FALLING, config="probs = torch.softmax(scores, dim=-1)\n"),
    ),
    "bad-initial-loss": (
        Example(observed={"loss.initial": 31.0, "loss.expected_initial": 2.3026}),
        Example(log=FALLING, observed={"loss.initial": 2.41, "loss.expected_initial": 2.3026}),
    ),
    "bad-init": (
        Example(observed={"activation.slope": 0.45}),
        Example(log=FALLING, observed={"activation.slope": 0.02}),
    ),
    "attention-unscaled": (
        Example(observed={"attention.score_std": 9.4}),
        Example(log=FALLING, observed={"attention.score_std": 1.1}),
    ),
    "norm-eps": (
        Example(observed={"norm.eps_underflows": ["encoder.layer.0.norm"]}),
        Example(log=FALLING, config="layer_norm_eps: 1e-12\nbf16: true\n"),
    ),
    "excess-dropout": (
        Example(
            log="\n".join(f"step {i} | loss 2.3026 | grad_norm 0.0021" for i in range(25)),
            config="dropout: 0.95\nlearning_rate: 1e-3\n",
        ),
        Example(log=FALLING, config="dropout: 0.1\n"),
    ),
    "nan-weights": (
        Example(
            log=FROM_START,
            config="precision: fp32\nself.gate = nn.Parameter(torch.empty(512, 512))\n",
        ),
        Example(
            log=SUDDEN,
            config="self.gate = nn.Parameter(torch.empty(512, 512))\nnn.init.xavier_uniform_(self.gate)\n",
        ),
    ),
    "nan-loss": (
        Example(log="step 90000 | val_loss nan\n", config="bf16: true\nlearning_rate: 1e-6\nmax_grad_norm: 1.0\n"),
        Example(log=FALLING),
    ),
}
