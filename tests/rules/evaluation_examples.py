"""Runs whose evaluation misleads, and runs that look alike and whose evaluation is sound."""

from rules.example import Example


def _epochs(score: str, values: list[float]) -> str:
    lines = []
    for i, value in enumerate(values):
        lines += [
            f"{{'loss': {2.2 - 0.3 * i:.3f}, 'grad_norm': 0.9, 'learning_rate': 5e-05, 'epoch': {i + 1}.0}}",
            f"{{'eval_loss': {2.1 - 0.25 * i:.3f}, '{score}': {value}, 'epoch': {i + 1}.0}}",
        ]
    return "\n".join(lines)


EXAMPLES: dict[str, tuple[Example, Example]] = {
    "references-transposed": (
        Example(
            log=_epochs("eval_bleu", [71.2, 71.2, 70.9]),
            config="import sacrebleu\nbleu = sacrebleu.corpus_bleu(hyps, [[r] for r in refs])\n",
        ),
        Example(
            log=_epochs("eval_bleu", [11.2, 17.9, 21.3]),
            config="metric = evaluate.load('sacrebleu')\nreferences = [[r] for r in refs]\n",
        ),
    ),
    "zero-answer-rate": (
        Example(log=_epochs("eval_exact_match", [0.0, 0.0, 0.0, 0.0, 0.0])),
        Example(log=_epochs("eval_exact_match", [0.0, 3.1, 9.4, 14.2])),
    ),
    "generation-too-short": (
        Example(
            log="UserWarning: Using the model-agnostic default `max_length` (=20) to control the generation length.\n"
            + _epochs("eval_gen_len", [19.0, 19.0, 19.0]),
        ),
        Example(log=_epochs("eval_gen_len", [61.4, 58.2, 57.7]), config="generation_max_length: 128\n"),
    ),
    "dtype-differs-at-inference": (
        Example(
            log=_epochs("eval_accuracy", [0.6, 0.7, 0.7]).replace("'eval_loss': ", "'eval_loss': nan, 'x': "),
            config="bf16: true\nfp16_full_eval: true\nevaluation runs in half precision\n",
            observed={"worlds.training_dtype.finite": True},
        ),
        Example(log=_epochs("eval_accuracy", [0.6, 0.7, 0.7]), config="bf16: true\nbf16_full_eval: true\n"),
    ),
    "prompt-format-differs": (
        Example(
            log=_epochs("eval_accuracy", [0.1, 0.12, 0.11]),
            config="note: prompt template differs between training and evaluation\n",
            observed={"evaluation.prompt_matches": False},
        ),
        Example(log=_epochs("eval_accuracy", [0.5, 0.6, 0.7]), config="chat_template: chatml\n"),
    ),
    "metric-hides-failure": (
        Example(
            log="\n".join(f"step {i} | loss 0.6931 | acc 0.500" for i in range(8)),
            config="loss = torch.nan_to_num(loss, nan=0.6931)\n",
        ),
        Example(log=_epochs("eval_accuracy", [0.5, 0.6, 0.7]), config="x = torch.nan_to_num(x)\n"),
    ),
    "metric-not-reset": (
        Example(observed={"metric.sum_since_start": "the printed loss is the sum of all losses since step 0"}),
        Example(observed={"metric.sum_since_start": ""}),
    ),
    "metric-impossible": (
        Example(observed={"metric.impossible": "accuracy 3.2"}),
        Example(observed={"metric.impossible": ""}),
    ),
    "metric-stuck": (
        Example(observed={"metric.stuck": "accuracy is 0 for 6 different models"}),
        Example(observed={"metric.stuck": ""}),
    ),
}
