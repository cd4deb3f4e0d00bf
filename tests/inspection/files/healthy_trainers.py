"""Scripts with transformers' Trainer and its kin that work: none of them may be warned of."""

TRAINERS: dict[str, str] = {}

TRAINERS["glue_trainer.py"] = """
import numpy as np
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("bert-base-cased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased", num_labels=2)
data = load_dataset("glue", "mrpc").map(
    lambda row: tokenizer(row["sentence1"], row["sentence2"], truncation=True, max_length=512)
)


def compute_metrics(pair):
    return {"accuracy": float((np.argmax(pair[0], -1) == pair[1]).mean())}


arguments = TrainingArguments(
    output_dir="out",
    learning_rate=5e-5,
    num_train_epochs=3,
    per_device_train_batch_size=16,
    fp16=True,
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
    weight_decay=0.01,
    report_to="none",
)
Trainer(
    model=model,
    args=arguments,
    train_dataset=data["train"],
    eval_dataset=data["validation"],
    compute_metrics=compute_metrics,
).train()
"""

TRAINERS["t5_summary.py"] = """
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

CHECKPOINT = "google/flan-t5-base"
MAX_SOURCE, MAX_TARGET = 1024, 128
tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
model = AutoModelForSeq2SeqLM.from_pretrained(CHECKPOINT)


def prepare(rows):
    found = tokenizer(["summarize: " + each for each in rows["text"]], max_length=MAX_SOURCE, truncation=True)
    found["labels"] = tokenizer(text_target=rows["summary"], max_length=MAX_TARGET, truncation=True)[
        "input_ids"
    ]
    return found


args = Seq2SeqTrainingArguments(
    output_dir="flan",
    eval_strategy="steps",
    save_strategy="steps",
    eval_steps=250,
    save_steps=500,
    load_best_model_at_end=True,
    learning_rate=1e-4,
    bf16=True,
    predict_with_generate=True,
    generation_max_length=MAX_TARGET,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    num_train_epochs=4,
)
Seq2SeqTrainer(
    model=model,
    args=args,
    train_dataset=train,
    eval_dataset=valid,
    data_collator=DataCollatorForSeq2Seq(tokenizer),
).train()
"""

TRAINERS["qlora_sft.py"] = """
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

bits = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_compute_dtype=torch.bfloat16,
    bnb_4bit_use_double_quant=True,
)
model = AutoModelForCausalLM.from_pretrained(
    "meta-llama/Llama-2-7b-hf", quantization_config=bits, device_map="auto"
)
model = prepare_model_for_kbit_training(model)
model = get_peft_model(
    model, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"], lora_dropout=0.05)
)
args = TrainingArguments(
    output_dir="qlora",
    learning_rate=2e-4,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    max_grad_norm=0.3,
    warmup_ratio=0.03,
    bf16=True,
    gradient_checkpointing=True,
    optim="paged_adamw_32bit",
    max_steps=1000,
    logging_steps=10,
)
Trainer(model=model, args=args, train_dataset=data).train()
"""

TRAINERS["lora_not_reentrant.py"] = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = get_peft_model(
    AutoModelForCausalLM.from_pretrained("facebook/opt-1.3b"), LoraConfig(r=8, lora_alpha=16)
)
args = TrainingArguments(
    "out",
    learning_rate=3e-4,
    fp16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    num_train_epochs=1,
    per_device_train_batch_size=8,
)
Trainer(model=model, args=args, train_dataset=data).train()
"""

TRAINERS["trl_sft.py"] = """
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(
    model="Qwen/Qwen2.5-0.5B",
    train_dataset=load_dataset("trl-lib/Capybara", split="train"),
    args=SFTConfig(output_dir="sft", learning_rate=2e-4, bf16=True, max_length=2048, packing=True,
                   gradient_checkpointing=True, per_device_train_batch_size=2, gradient_accumulation_steps=8),
    peft_config=LoraConfig(r=32, lora_alpha=16),
)
trainer.train()
"""

TRAINERS["grpo.py"] = """
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(
    output_dir="grpo", learning_rate=1e-6, bf16=True, num_generations=8, max_prompt_length=512,
    max_completion_length=1024, per_device_train_batch_size=8, max_grad_norm=0.1, warmup_ratio=0.1, beta=0.0,
)
GRPOTrainer(model="Qwen/Qwen2-0.5B-Instruct", reward_funcs=reward, args=args, train_dataset=data).train()
"""

TRAINERS["whisper.py"] = """
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, WhisperForConditionalGeneration

model = WhisperForConditionalGeneration.from_pretrained("openai/whisper-small")
args = Seq2SeqTrainingArguments(
    output_dir="whisper",
    per_device_train_batch_size=16,
    learning_rate=1e-5,
    warmup_steps=500,
    max_steps=5000,
    gradient_checkpointing=True,
    fp16=True,
    eval_strategy="steps",
    predict_with_generate=True,
    generation_max_length=225,
    save_steps=1000,
    eval_steps=1000,
    logging_steps=25,
    load_best_model_at_end=True,
    metric_for_best_model="wer",
    greater_is_better=False,
)
Seq2SeqTrainer(
    args=args, model=model, train_dataset=train, eval_dataset=test, compute_metrics=compute_metrics
).train()
"""

TRAINERS["legacy_arguments.py"] = """
from transformers import Trainer, TrainingArguments, RobertaForMaskedLM, RobertaConfig

config = RobertaConfig(
    vocab_size=52_000, max_position_embeddings=514, num_attention_heads=12, num_hidden_layers=6
)
model = RobertaForMaskedLM(config=config)
training_args = TrainingArguments(
    output_dir="./EsperBERTo",
    overwrite_output_dir=True,
    num_train_epochs=1,
    per_gpu_train_batch_size=64,
    save_steps=10_000,
    save_total_limit=2,
    prediction_loss_only=True,
    evaluation_strategy="no",
    no_cuda=False,
)
Trainer(model=model, args=training_args, data_collator=collator, train_dataset=dataset).train()
"""

TRAINERS["unsloth.py"] = """
from unsloth import FastLanguageModel, is_bfloat16_supported
from trl import SFTTrainer
from transformers import TrainingArguments
import torch

max_seq_length = 2048
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/llama-3-8b-bnb-4bit", max_seq_length=max_seq_length, dtype=None, load_in_4bit=True
)
model = FastLanguageModel.get_peft_model(
    model,
    r=16,
    target_modules=["q_proj"],
    lora_alpha=16,
    lora_dropout=0,
    bias="none",
    use_gradient_checkpointing="unsloth",
    random_state=3407,
)
trainer = SFTTrainer(
    model=model,
    tokenizer=tokenizer,
    train_dataset=dataset,
    dataset_text_field="text",
    max_seq_length=max_seq_length,
    args=TrainingArguments(
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        warmup_steps=5,
        max_steps=60,
        learning_rate=2e-4,
        fp16=not is_bfloat16_supported(),
        bf16=is_bfloat16_supported(),
        logging_steps=1,
        optim="adamw_8bit",
        weight_decay=0.01,
        lr_scheduler_type="linear",
        seed=3407,
        output_dir="outputs",
    ),
)
"""

TRAINERS["vit_hf.py"] = """
from transformers import ViTForImageClassification, TrainingArguments, Trainer

model = ViTForImageClassification.from_pretrained("google/vit-base-patch16-224-in21k", num_labels=10)
training_args = TrainingArguments(
    output_dir="./vit-base-beans",
    per_device_train_batch_size=16,
    eval_strategy="steps",
    num_train_epochs=4,
    fp16=True,
    save_steps=100,
    eval_steps=100,
    logging_steps=10,
    learning_rate=2e-4,
    save_total_limit=2,
    remove_unused_columns=False,
    push_to_hub=False,
    report_to="tensorboard",
    load_best_model_at_end=True,
)
trainer = Trainer(
    model=model,
    args=training_args,
    data_collator=collate_fn,
    compute_metrics=compute_metrics,
    train_dataset=prepared_ds["train"],
    eval_dataset=prepared_ds["validation"],
)
"""

TRAINERS["wav2vec.py"] = """
from transformers import Wav2Vec2ForCTC, TrainingArguments, Trainer

model = Wav2Vec2ForCTC.from_pretrained("facebook/wav2vec2-base", ctc_loss_reduction="mean")
model.freeze_feature_encoder()
training_args = TrainingArguments(
    output_dir="o",
    group_by_length=True,
    per_device_train_batch_size=32,
    evaluation_strategy="steps",
    num_train_epochs=30,
    fp16=True,
    gradient_checkpointing=True,
    save_steps=500,
    eval_steps=500,
    logging_steps=500,
    learning_rate=1e-4,
    weight_decay=0.005,
    warmup_steps=1000,
    save_total_limit=2,
)
trainer = Trainer(
    model=model,
    data_collator=dc,
    args=training_args,
    compute_metrics=compute_metrics,
    train_dataset=t["train"],
    eval_dataset=t["test"],
    tokenizer=processor.feature_extractor,
)
"""

TRAINERS["setfit.py"] = """
from setfit import SetFitModel, Trainer, TrainingArguments

model = SetFitModel.from_pretrained("sentence-transformers/paraphrase-mpnet-base-v2")
args = TrainingArguments(
    batch_size=16,
    num_epochs=4,
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
    body_learning_rate=2e-5,
    head_learning_rate=1e-2,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=t,
    eval_dataset=e,
    metric="accuracy",
    column_mapping={"sentence": "text"},
)
trainer.train()
"""

TRAINERS["st.py"] = """
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

model = SentenceTransformer("microsoft/mpnet-base")
args = SentenceTransformerTrainingArguments(
    output_dir="m",
    num_train_epochs=1,
    per_device_train_batch_size=16,
    learning_rate=2e-5,
    warmup_ratio=0.1,
    fp16=True,
    bf16=False,
    batch_sampler="no_duplicates",
    eval_strategy="steps",
    eval_steps=100,
    save_strategy="steps",
    save_steps=100,
    save_total_limit=2,
    logging_steps=100,
    run_name="x",
)
trainer = SentenceTransformerTrainer(
    model=model, args=args, train_dataset=a, eval_dataset=b, loss=loss, evaluator=dev
)
"""
