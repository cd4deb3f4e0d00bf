"""Causes in the words of several libraries and versions, each beside a healthy or other look-alike."""

import pytest

from rules.example import Example
from stayfinite.rules.ranking import rank
from stayfinite.rules.registry import all_rules

FALLING = "step 10 loss 2.31\nstep 20 loss 2.02\nstep 30 loss 1.77\nstep 40 loss 1.58\nstep 50 loss 1.41\n"
FLAT = "".join(f"epoch {i} loss {2.3026 + 0.0001 * (i % 3):.4f}\n" for i in range(1, 9))
OTHER_ROWS = (
    "RuntimeError: Error(s) in loading state_dict for LM:\n\tsize mismatch for tok_embeddings.weight: copying a param "
    "with shape torch.Size([120, 64]) from checkpoint, the shape in current model is torch.Size([118, 64]).\n"
)
NEW_HEAD = (
    "- classifier.weight: found shape torch.Size([2, 768]) in the checkpoint and torch.Size([5, 768]) in the model "
    "instantiated\n"
)


def causes(log: str, config: str = "") -> list[str]:
    found = rank(Example(log=log, config=config).facts(), all_rules())
    return [finding.cause for finding in found if finding.severity != "info"]


@pytest.mark.parametrize(
    ("cause", "log", "config"),
    [
        # A row that a table does not have: whose it is, its size tells.
        (
            "token-id-out-of-range",
            "IndexError: index 9001 is out of bounds for dimension 0 with size 9000\n",
            "vocab_size: 9000\n",
        ),
        (
            "token-id-out-of-range",
            "InvalidArgumentError: indices[0,3] = 512 is not in [0, 500)\n",
            "emb = nn.Embedding(500, 64)\n",
        ),
        ("token-id-out-of-range", "Assertion `index out of bounds: 0 <= tmp9 < 7000` failed.\n", "n_vocab: 7000\n"),
        ("label-out-of-range", "IndexError: index 12 is out of bounds for axis 1 with size 12\n", "num_classes: 12\n"),
        ("label-out-of-range", "ValueError: labels must be in the range 0 to 4, got 5\n", ""),
        (
            "label-out-of-range",
            "epoch 1 loss -4.1\nepoch 2 loss -39.0\nepoch 3 loss -402.7\n",
            "nn.BCELoss(), masks 0 and 255\n",
        ),
        # A target that the loss does not take.
        ("loss-broadcast", "RuntimeError: 0D or 1D target tensor expected, multi-target not supported\n", ""),
        ("loss-broadcast", "ValueError: Shapes (None, 1) and (None, 7) are incompatible\n", ""),
        ("loss-broadcast", "ValueError: Expected input batch_size (64) to match target batch_size (8).\n", ""),
        ("loss-broadcast", "RuntimeError: Found dtype Double but expected Float\n", "nn.MSELoss()\n"),
        (
            "loss-broadcast",
            "  return F.cross_entropy(a, b)\nRuntimeError: expected scalar type Long but found Int\n",
            "",
        ),
        # Two devices in one operation, whatever they are called.
        (
            "device-mismatch",
            "RuntimeError: Expected object of type torch.cuda.LongTensor but found type torch.LongTensor\n",
            "",
        ),
        (
            "device-mismatch",
            "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) must agree\n",
            "",
        ),
        (
            "device-mismatch",
            "RuntimeError: slow_conv2d: input(device='cpu') and weight(device=mps:0') must be on the same device\n",
            "",
        ),
        (
            "device-mismatch",
            "RuntimeError: expected backend CUDA and dtype Float but got backend CPU and dtype Float\n",
            "",
        ),
        ("device-mismatch", "RuntimeError: x must be a CUDA tensor\n", ""),
        # Memory, as everything that allocates says it.
        ("out-of-memory", "F0101 syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0) out of memory\n", ""),
        ("out-of-memory", "failed to allocate 2.20G (2362232012 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY\n", ""),
        ("out-of-memory", "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array\n", ""),
        ("out-of-memory", "slurmstepd: error: Exceeded job memory limit at some point.\n", ""),
        ("out-of-memory", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.\n", ""),
        # Checkpoints of another model, of another vocabulary, half written.
        (
            "architecture-mismatch",
            "ValueError: You are trying to load a weight file containing 16 layers into a model with 15 layers.\n",
            "",
        ),
        ("architecture-mismatch", "NotFoundError: Key conv1/kernel not found in checkpoint\n", ""),
        (
            "architecture-mismatch",
            OTHER_ROWS,
            "",
        ),
        (
            "corrupt-checkpoint",
            "OSError: Unable to open file (file signature not found)\n",
            "model.load_weights('a.h5')\n",
        ),
        ("poisoned-checkpoint", "restored weights contain NaNs in 12 layers\nstep 1 loss nan\n", "resume: last.pt\n"),
        # Layers and losses that the code cuts off.
        (
            "unregistered-module",
            FLAT,
            "self.cells = []\nfor _ in range(3):\n    cell = nn.GRUCell(8, 8)\n    self.cells.append(cell)\n",
        ),
        ("unregistered-module", FLAT, "self.heads = {}\nself.heads['a'] = nn.Linear(8, 2)\n"),
        (
            "detached-loss",
            FLAT,
            "cost = 0\nfor p, q in pairs:\n    cost += (p.detach().numpy() * q).sum()\ncost.backward()\n",
        ),
        ("detached-loss", "ValueError: No gradients provided for any variable: ['dense/kernel:0'].\n", ""),
        ("detached-loss", "RuntimeError: there are no graph nodes that require computing gradients\n", ""),
        ("wrong-mode", "", "with model.eval() the accuracy is 0.12\nwith model.train() the accuracy is 0.91\n"),
        # Rows and batches.
        ("bad-data-row", "ValueError: Input y contains NaN.\n", ""),
        ("bad-data-row", "DataLossError: corrupted record at 1182\n", ""),
        (
            "bad-data-row",
            "RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0 and [1] at entry 5\n",
            "",
        ),
        (
            "empty-batch",
            "ValueError: Found array with 0 sample(s) (shape=(0, 12)) while a minimum of 1 is required.\n",
            "",
        ),
        ("empty-batch", "FileNotFoundError: Couldn't find any class folder in data/train.\n", ""),
        (
            "all-labels-masked",
            "step 3 loss nan\n    mean = total / num_valid_tokens\nZeroDivisionError: float division by zero\n",
            "",
        ),
        (
            "position-out-of-range",
            "IndexError: index out of range in self\n",
            "model_type: roberta\nmax_seq_length: 512\n",
        ),
        # What the error checks, in another library's or a person's words.
        ("inplace-modification", "It says a variable needed for gradient computation was at version 2\n", ""),
        ("device-mismatch", 'It says "Input and hidden tensors are not at the same device, cuda:0 and cpu"\n', ""),
        ("autocast-missing", "Input #1 was expected to be a half tensor but is a float tensor [Op:MatMul]\n", ""),
        ("quantized-weights", "ValueError: `.to` is not supported for `4-bit` or `8-bit` bitsandbytes models.\n", ""),
        ("architecture-mismatch", 'generate shape (8, 3) but got shape (8, 2) instead for parameter "kernel"\n', ""),
        (
            "token-id-out-of-range",
            "    emb.weight[input_ids]\nIndexError: index 9001 is out of bounds for dimension 0 with size 9000\n",
            "",
        ),
        ("corrupt-checkpoint", "DataLossError: Unable to open table file ckpt: Data loss: not an sstable\n", ""),
        ("ddp-unused-parameters", "parameters that did not receive grad for rank 1: aux.weight\n", ""),
        ("rank-desync", "Tensors were submitted by subset of ranks and wait for the remainder\nStalled ranks:\n", ""),
        ("unknown-setting", "ConfigAttributeError: Key 'leraning_rate' is not in struct\n", ""),
        ("config-contradiction", "AssertionError: hidden_size 770 must be divisible by num_attention_heads 12\n", ""),
        ("card-lacks-feature", "RuntimeError: this kernel requires CUDA capability >= 7.0\n", ""),
        ("environment", "RuntimeError: operator torchvision::nms does not exist\n", ""),
        ("step-fails", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x921 and 409x10)\n", ""),
        ("step-fails", "TypeError: forward() missing 1 required positional argument: 'mask'\n", ""),
        ("lr-zero", "the learning rate is displayed as 0 at each step and the loss does not move\n", ""),
        ("unscaled-input", "epoch 1 loss 3e8\nepoch 2 loss nan\nnormalizing the inputs fixes it\n", ""),
    ],
)  # fmt: skip
def test_a_cause_is_known_in_other_words(cause: str, log: str, config: str) -> None:
    assert causes(log, config)[0] == cause


@pytest.mark.parametrize(
    ("log", "config"),
    [
        (FALLING, "vocab_size: 9000\nnum_classes: 12\n"),
        (
            "epoch 1 loss -4.1\nepoch 2 loss -39.0\nepoch 3 loss -62.7\n",
            "VAE: negative ELBO, binary cross entropy decoder\n",
        ),
        (
            "Token indices sequence length is longer than the specified maximum (900 > 512).\n" + FALLING,
            "",
        ),
        (
            "Token indices sequence length is longer than the specified maximum (900 > 512).\n",
            "model: bert-base-uncased\n",
        ),
        ("All inputs are expected on cuda:0 and copied from cpu\n" + FALLING, ""),
        ("Lower the batch size if you run out of memory (OOM).\n" + FALLING, ""),
        ("CUDA out of memory at batch 64, trying 32\n" + FALLING, ""),
        ("oom_retries: 0\n" + FALLING, ""),
        (
            NEW_HEAD + FALLING,
            "",
        ),
        ("size mismatch for fc.weight, skipped\n", "finetune\n"),
        ("_IncompatibleKeys(missing_keys=[], unexpected_keys=[])\n" + FALLING, "load_state_dict(ckpt, strict=False)\n"),
        ("Resumed from checkpoint-900\n" + FALLING.replace("step ", "step 9"), "resume: true\n"),
        (FALLING, "self.history = []\nself.history.append(loss.item())\n"),
        (FALLING, "self.parts = []\nself.parts.append(nn.Linear(4, 4))\nself.body = nn.Sequential(*self.parts)\n"),
        (
            FALLING,
            "loss = F.mse_loss(net(x), y.detach())\nloss.backward()\ntotal += loss.item()\n",
        ),
        ("WARNING:tensorflow:Gradients do not exist for variables ['a:0'] when minimizing the loss.\n" + FALLING, ""),
        (
            "epoch 1 train loss 1.2 eval accuracy 0.5\nepoch 2 train loss 1.0 eval accuracy 0.6\n",
            "model.eval() then model.train()\n",
        ),
        ("skipped 3 rows: label out of range\n" + FALLING, ""),
        ("Filtered 12 files, 0 images left out\n" + FALLING, ""),
    ],
)  # fmt: skip
def test_what_looks_like_it_is_left_in_peace(log: str, config: str) -> None:
    assert causes(log, config) == []


def test_a_list_that_becomes_a_module_list_is_registered() -> None:
    code = "self.parts = []\nself.parts.append(part)\npart = nn.Linear(4, 4)\nself.body = nn.ModuleList(self.parts)\n"
    assert "unregistered-module" not in causes(FLAT, code)


def test_a_loss_with_a_detached_target_is_not_cut_off() -> None:
    code = "loss = F.mse_loss(net(x), target.detach())\nloss += penalty.item()\nloss.backward()\n"
    assert causes(FLAT, code)[0] != "detached-loss"


def test_a_shape_error_without_a_checkpoint_says_nothing_of_one() -> None:
    error = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x512 and 256x10)\n"
    assert "architecture-mismatch" not in causes(error)


def test_a_dtype_of_half_precision_is_no_matter_of_the_target() -> None:
    log = "  loss = F.cross_entropy(a, b)\nRuntimeError: expected scalar type Float but found Half\n"
    assert "loss-broadcast" not in causes(log)
