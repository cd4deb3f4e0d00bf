"""A translation script in the shape of transformers' own example: arguments, local files, a model from a directory."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import numpy as np
import sacrebleu
from datasets import load_dataset
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

CALLBACKS = []  # the one line goes here


@dataclass
class DataArguments:
    model_name_or_path: str = field(metadata={"help": "directory of model and tokenizer"})
    train_file: str = field(metadata={"help": "JSON lines with one translation each"})
    validation_file: str = field(metadata={"help": "the same, to evaluate on"})
    max_length: int = field(default=32, metadata={"help": "of source and target, in tokens"})


def main() -> None:
    parser = HfArgumentParser((DataArguments, Seq2SeqTrainingArguments))
    data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)
    files = {"train": data_args.train_file, "validation": data_args.validation_file}
    raw = load_dataset("json", data_files=files, cache_dir=f"{training_args.output_dir}/cache")
    config = AutoConfig.from_pretrained(data_args.model_name_or_path)
    tokenizer = AutoTokenizer.from_pretrained(data_args.model_name_or_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(data_args.model_name_or_path, config=config)

    def preprocess(examples):
        sources = [example["en"] for example in examples["translation"]]
        targets = [example["xx"] for example in examples["translation"]]
        made = tokenizer(sources, max_length=data_args.max_length, truncation=True)
        made["labels"] = tokenizer(text_target=targets, max_length=data_args.max_length, truncation=True)["input_ids"]
        return made

    with training_args.main_process_first(desc="tokenizing"):
        tokenized = raw.map(preprocess, batched=True, remove_columns=raw["train"].column_names)

    def compute_metrics(predicted):
        guesses, labels = predicted
        guesses = np.where(guesses != -100, guesses, tokenizer.pad_token_id)
        labels = np.where(labels != -100, labels, tokenizer.pad_token_id)
        said = [line.strip() for line in tokenizer.batch_decode(guesses, skip_special_tokens=True)]
        meant = [line.strip() for line in tokenizer.batch_decode(labels, skip_special_tokens=True)]
        return {"bleu": round(sacrebleu.corpus_bleu(said, [meant]).score, 4)}

    trainer = Seq2SeqTrainer(
        model=model,
        args=training_args,
        train_dataset=tokenized["train"],
        eval_dataset=tokenized["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model, label_pad_token_id=-100),
        compute_metrics=compute_metrics if training_args.predict_with_generate else None,
        callbacks=CALLBACKS,
    )
    result = trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()
    metrics = result.metrics | {"train_samples": len(tokenized["train"])}
    trainer.log_metrics("train", metrics)
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    metrics = trainer.evaluate(max_length=data_args.max_length, num_beams=2, metric_key_prefix="eval")
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)
    trainer.create_model_card(tasks="translation")


if __name__ == "__main__":
    sys.exit(main())
