"""Training scripts that work, as people write them: none of them may be warned of."""

SCRIPTS: dict[str, str] = {}

SCRIPTS["glue_trainer.py"] = """
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

SCRIPTS["t5_summary.py"] = """
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

SCRIPTS["qlora_sft.py"] = """
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

SCRIPTS["lora_not_reentrant.py"] = """
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

SCRIPTS["trl_sft.py"] = """
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

SCRIPTS["mnist.py"] = """
import argparse
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--no-accel", action="store_true")
    args = parser.parse_args()
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        for data, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(F.log_softmax(model(data), -1), target)
            loss.backward()
            optimizer.step()
        scheduler.step()

if __name__ == "__main__":
    main()
"""

SCRIPTS["imagenet.py"] = """
import argparse
import torch

parser = argparse.ArgumentParser(description="ImageNet")
parser.add_argument("-a", "--arch", default="resnet18")
parser.add_argument("--epochs", default=90, type=int)
parser.add_argument("-b", "--batch-size", default=256, type=int)
parser.add_argument("--lr", "--learning-rate", default=0.1, type=float, dest="lr")
parser.add_argument("--momentum", default=0.9, type=float)
parser.add_argument("--wd", "--weight-decay", default=1e-4, type=float, dest="weight_decay")
args = parser.parse_args()
optimizer = torch.optim.SGD(
    model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay
)
"""

SCRIPTS["gcn.py"] = """
import torch
from torch_geometric.nn import GCNConv

optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(200):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(data)[mask], data.y[mask])
    loss.backward()
    optimizer.step()
"""

SCRIPTS["word_lm.py"] = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="LSTM")
parser.add_argument("--lr", type=float, default=20)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--bptt", type=int, default=35)
args = parser.parse_args()
torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
"""

SCRIPTS["nanogpt.py"] = """
out_dir = 'out-shakespeare-char'
eval_interval = 250
always_save_checkpoint = False
dataset = 'shakespeare_char'
gradient_accumulation_steps = 1
batch_size = 64
block_size = 256
n_layer = 6
n_head = 6
n_embd = 384
dropout = 0.2
learning_rate = 1e-3
max_iters = 5000
lr_decay_iters = 5000
min_lr = 1e-4
beta2 = 0.99
warmup_iters = 100
grad_clip = 1.0
"""

SCRIPTS["faster_rcnn_r50_fpn_1x_coco.py"] = """
_base_ = ["../_base_/models/faster-rcnn_r50_fpn.py", "../_base_/datasets/coco_detection.py"]
train_cfg = dict(type="EpochBasedTrainLoop", max_epochs=12, val_interval=1)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type="MultiStepLR", begin=0, end=12, by_epoch=True, milestones=[8, 11], gamma=0.1),
]
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="SGD", lr=0.02, momentum=0.9, weight_decay=0.0001),
    clip_grad=None,
)
auto_scale_lr = dict(enable=False, base_batch_size=16)
"""

SCRIPTS["old_mmdet.py"] = """
optimizer = dict(type='SGD', lr=0.02, momentum=0.9, weight_decay=0.0001)
optimizer_config = dict(grad_clip=None)
lr_config = dict(policy='step', warmup='linear', warmup_iters=500, warmup_ratio=0.001, step=[8, 11])
runner = dict(type='EpochBasedRunner', max_epochs=12)
fp16 = dict(loss_scale=512.)
data = dict(samples_per_gpu=2, workers_per_gpu=2)
"""

SCRIPTS["grpo.py"] = """
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(
    output_dir="grpo", learning_rate=1e-6, bf16=True, num_generations=8, max_prompt_length=512,
    max_completion_length=1024, per_device_train_batch_size=8, max_grad_norm=0.1, warmup_ratio=0.1, beta=0.0,
)
GRPOTrainer(model="Qwen/Qwen2-0.5B-Instruct", reward_funcs=reward, args=args, train_dataset=data).train()
"""

SCRIPTS["whisper.py"] = """
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

SCRIPTS["prompt_tuning.py"] = """
from peft import PromptTuningConfig, get_peft_model
import torch
config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=8)
model = get_peft_model(AutoModelForCausalLM.from_pretrained("bigscience/bloomz-560m"), config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
num_epochs = 50
"""

SCRIPTS["legacy_arguments.py"] = """
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

SCRIPTS["lightning_script.py"] = """
import lightning as L
import torch


class Lit(L.LightningModule):
    def training_step(self, batch, index):
        return torch.nn.functional.mse_loss(self(batch), batch)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


trainer = L.Trainer(
    max_epochs=5, precision="bf16-mixed", gradient_clip_val=0.5, accumulate_grad_batches=2, devices=1
)
trainer.fit(Lit(), loader)
"""

SCRIPTS["inference_8bit.py"] = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained("google/gemma-2b", load_in_8bit=True, torch_dtype=torch.float16)
print(model.generate(**inputs, max_new_tokens=64))
"""

SCRIPTS["unsloth.py"] = """
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

SCRIPTS["vit_hf.py"] = """
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

SCRIPTS["wav2vec.py"] = """
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

SCRIPTS["rl.py"] = """
import torch, argparse
from torch.distributions import Categorical

parser = argparse.ArgumentParser()
parser.add_argument("--gamma", type=float, default=0.99)
args = parser.parse_args()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
"""

SCRIPTS["dcgan.py"] = """
import torch.optim as optim
lr = 0.0002
beta1 = 0.5
num_epochs = 5
optimizerD = optim.Adam(netD.parameters(), lr=lr, betas=(beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=lr, betas=(beta1, 0.999))
"""

SCRIPTS["linear_probe.py"] = """
import torch, torchvision
model = torchvision.models.resnet50(weights="IMAGENET1K_V2")
for p in model.parameters(): p.requires_grad = False
opt = torch.optim.SGD(model.fc.parameters(), lr=30.0, momentum=0.9)
epochs = 100
batch_size = 256
"""

SCRIPTS["setfit.py"] = """
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

SCRIPTS["st.py"] = """
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
