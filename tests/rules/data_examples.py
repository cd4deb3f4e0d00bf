"""Of every rule on data and labels: a run that has the cause, and one that looks like it and has not."""

from rules.example import Example

HEALTHY = """\
{'loss': 2.3104, 'grad_norm': 3.2, 'learning_rate': 4.9e-05, 'epoch': 0.1}
{'loss': 1.8017, 'grad_norm': 2.1, 'learning_rate': 4.8e-05, 'epoch': 0.2}
{'loss': 1.5213, 'grad_norm': 1.9, 'learning_rate': 4.7e-05, 'epoch': 0.3}
{'loss': 1.3928, 'grad_norm': 1.7, 'learning_rate': 4.6e-05, 'epoch': 0.4}
"""
HIGH_RATE = """\
step 10 | loss 2.1 | grad_norm 1.4
step 20 | loss 1.9 | grad_norm 3.8
step 30 | loss 6.7 | grad_norm 92.1
step 40 | loss 48.2 | grad_norm 4410.0
step 50 | loss nan | grad_norm nan
"""
MASKED = """\
{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1.9e-05, 'epoch': 0.01}
{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1.8e-05, 'epoch': 0.02}
"""
ASSERT = "RuntimeError: CUDA error: device-side assert triggered\n"

EXAMPLES: dict[str, tuple[Example, Example]] = {
    "bad-data-row": (
        Example(
            log="""\
iter: 100 loss: 3.1042 loss_ctc: 3.9022 loss_att: 2.7812
iter: 200 loss: 2.8711 loss_ctc: 3.5240 loss_att: 2.5913
(ctc:66) WARNING: All samples in this mini-batch got nan grad. Returning nan value instead of CTC loss
WARNING: The grad norm is nan. Skipping updating the model.
""",
            config="recipe: own recordings, 8 kHz\nprecision: fp32\n",
        ),
        Example(log=HIGH_RATE, config="lr: 0.1\ndataset: own images\nprecision: fp32\n"),
    ),
    "all-labels-masked": (
        Example(
            log="""\
{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 2e-05, 'mean_token_accuracy': 0.0, 'epoch': 0.01}
{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 2e-05, 'mean_token_accuracy': 0.0, 'epoch': 0.02}
""",
            config="completion_only_loss: true\nmax_length: 128\nbf16: true\n",
        ),
        Example(log=MASKED, config="model_name_or_path: google/mt5-base\nfp16: true\n"),
    ),
    "token-id-out-of-range": (
        Example(
            log="""\
  File "modeling_gpt2.py", line 880, in forward
    inputs_embeds = self.wte(input_ids)
IndexError: index out of range in self
""",
            config="tokenizer.add_special_tokens({'pad_token': '[PAD]'})\nmodel: gpt2\n",
        ),
        Example(
            log="""\
Token indices sequence length is longer than the specified maximum sequence length for this model (1313 > 1024).
    position_embeds = self.wpe(position_ids)
IndexError: index out of range in self
""",
            config="model: gpt2\n",
        ),
    ),
    "position-out-of-range": (
        Example(
            log="""\
  File "modeling_bert.py", line 211, in forward
    position_embeddings = self.position_embeddings(position_ids)
RuntimeError: index out of range: Tried to access index 512 out of table with 511 rows.
""",
            config="model: bert-base-uncased\nmax_seq_length: 1024\n",
        ),
        Example(
            log=f"Token indices sequence length is longer than the specified maximum (781 > 512).\n{HEALTHY}",
            config="model: bert-base-uncased\n",
        ),
    ),
    "label-out-of-range": (
        Example(
            log=f"""\
Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.
{ASSERT}""",
            config="num_labels: 3\n",
        ),
        Example(
            log=f"""\
Indexing.cu:1289: indexSelectLargeIndex: thread: [64,0,0] Assertion `srcIndex < srcSelectDimSize` failed.
{ASSERT}""",
            config="tokenizer: 12 new tokens added\nmodel: bert-base-cased\n",
        ),
    ),
    "tokenizer-mismatch": (
        Example(
            log="""\
WARNING: tokenization mismatch: 64 vs. 61. (ignored)
WARNING: tokenization mismatch: 118 vs. 115. (ignored)
{'loss': 0.0, 'learning_rate': 2e-05, 'epoch': 0.01}
WARNING: tokenization mismatch: 91 vs. 88. (ignored)
""",
            config="conv_version: vicuna_v1\nmodel_name_or_path: phi-3-mini\n",
        ),
        Example(
            log="Special tokens have been added in the vocabulary, make sure the word embeddings are trained\n"
            f"The tokenizer has new PAD/BOS/EOS tokens that differ from the model config.\n{HEALTHY}"
        ),
    ),
    "truncation": (
        Example(observed={"data.truncated_share": 0.62}),
        Example(log=HEALTHY, observed={"data.truncated_share": 0.004}),
    ),
    "splits-written-differently": (
        Example(observed={"data.foreign_rows_share": 0.72, "data.foreign_characters": ["₂", "₃"]}),
        Example(log=HEALTHY, observed={"data.foreign_rows_share": 0.004, "data.foreign_characters": ["œ"]}),
    ),
    "train-val-overlap": (
        Example(observed={"data.overlap_share": 0.11}),
        Example(
            log=HEALTHY, config="train_file: a.csv\nvalidation_file: b.csv\n", observed={"data.overlap_share": 0.0}
        ),
    ),
    "unscaled-input": (
        Example(
            log="""\
Epoch 1: train loss: 38291044864.0000
Epoch 2: train loss: 38104391680.0000
Epoch 3: train loss: nan
""",
            config="loss: MSELoss\ntarget: house prices, raw values up to 750000\nprecision: fp32\n",
        ),
        Example(
            log="Epoch 1: train loss: 0.9817\nEpoch 2: train loss: 0.7120\n", config="loss: MSELoss, standardised\n"
        ),
    ),
    "label-imbalance": (
        Example(
            log="""\
UndefinedMetricWarning: Precision is ill-defined and being set to 0.0 due to no predicted samples.
{'eval_loss': 0.14, 'eval_accuracy': 0.971, 'eval_f1': 0.0, 'epoch': 1.0}
{'eval_loss': 0.13, 'eval_accuracy': 0.971, 'eval_f1': 0.0, 'epoch': 2.0}
{'eval_loss': 0.13, 'eval_accuracy': 0.971, 'eval_f1': 0.0, 'epoch': 3.0}
"""
        ),
        Example(
            log="""\
{'eval_loss': 0.34, 'eval_accuracy': 0.902, 'eval_f1': 0.71, 'epoch': 1.0}
{'eval_loss': 0.29, 'eval_accuracy': 0.921, 'eval_f1': 0.77, 'epoch': 2.0}
"""
        ),
    ),
    "constant-feature": (
        Example(observed={"data.constant_features": ["country", "version"]}),
        Example(log=HEALTHY, observed={"data.constant_features": []}),
    ),
    "unshuffled": (
        Example(observed={"labels.batch_purity": 0.99}),
        Example(log=HEALTHY, config="val_loader.shuffle: false\ntrain_loader.shuffle: true\n"),
    ),
    "duplicate-rows": (
        Example(observed={"data.duplicate_share": 0.41}),
        Example(log=HEALTHY, observed={"data.duplicate_share": 0.01}),
    ),
    "corrupt-encoding": (
        Example(
            log="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9 in position 17: invalid continuation byte\n"
        ),
        Example(log=f"reading corpus.txt (utf-8), 120000 lines\n{HEALTHY}"),
    ),
    "empty-batch": (
        Example(log="ValueError: num_samples should be a positive integer value, but got num_samples=0\n"),
        Example(log=f"***** Running training *****\n  Num examples = 1,010\n{HEALTHY}"),
    ),
    "loss-broadcast": (
        Example(
            log="loss.py:610: UserWarning: Using a target size (torch.Size([64])) that is different to the input size "
            "(torch.Size([64, 1])). This will likely lead to incorrect results due to broadcasting.\n"
            "Epoch 1: train loss: 1.0312\nEpoch 2: train loss: 1.0018\n"
        ),
        Example(log="Epoch 1: train loss: 1.0312\nEpoch 2: train loss: 0.6018\n", config="loss: MSELoss\n"),
    ),
    "workers-alike": (
        Example(observed={"loader.workers_draw_alike": 4}),
        Example(observed={"loader.workers_repeat": 0, "loader.workers_draw_alike": 0}),
    ),
    "last-batch-of-one": (
        Example(observed={"loader.last_batch_fails": 57}),
        Example(observed={"loader.last_batch_fails": 0}),
    ),
    "loader-too-slow": (
        Example(observed={"loader.seconds_per_batch": 0.9, "loader.seconds_per_step": 0.2}),
        Example(observed={"loader.seconds_per_batch": 0.01, "loader.seconds_per_step": 0.001}),
    ),
    "splits-scaled-differently": (
        Example(
            observed={"data.splits_scaled": "training inputs: mean 0, std 1; validation inputs: mean 0.5, std 0.25"}
        ),
        Example(observed={"data.splits_scaled": ""}),
    ),
    "labels-shuffled": (
        Example(observed={"labels.own_order": "x is indexed by one randperm and y by another"}),
        Example(observed={"labels.own_order": ""}),
    ),
    "labels-not-augmented": (
        Example(observed={"data.labels_not_augmented": "the image is mirrored, the mask is not"}),
        Example(observed={"data.labels_not_augmented": ""}),
    ),
    "padding-learned": (
        Example(observed={"plan.padding_learned": [("inputs['labels'] = targets['input_ids']", "a.py:8")]}),
        Example(config="inputs['labels'] = targets['input_ids']\nlabels[attention_mask == 0] = -100\n"),
    ),
    "eos-never-learned": (
        Example(observed={"plan.end_masked": [("labels[labels == tokenizer.pad_token_id] = -100", "a.py:8")]}),
        Example(config="tokenizer.pad_token = tokenizer.eos_token\nlabels[attention_mask == 0] = -100\n"),
    ),
}
