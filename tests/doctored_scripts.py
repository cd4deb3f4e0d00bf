"""Training scripts as other people write them, none of which has heard of stayfinite."""

TRANSFORMERS = """
import argparse

import torch
from transformers import T5Config, T5ForConditionalGeneration, Seq2SeqTrainer, Seq2SeqTrainingArguments, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--output", required=True)
parser.add_argument("--bad-row", type=int, default=-1)
parser.add_argument("--fail-at", type=int, default=-1)
given = parser.parse_args()


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, index):
        if index == given.fail_at:
            raise OSError(f"row {index} cannot be read")
        made = torch.Generator().manual_seed(index)
        labels = torch.randint(2, 24, (6,), generator=made)
        vectors = torch.nn.functional.one_hot(labels, 24)[:, :16].float()
        if index == given.bad_row:
            vectors[2, 3] = float("nan")
        return {"inputs_embeds": vectors, "labels": labels}


def main():
    set_seed(0)
    config = T5Config(
        vocab_size=24, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0, pad_token_id=0
    )
    args = Seq2SeqTrainingArguments(
        given.output, use_cpu=True, max_steps=40, per_device_train_batch_size=8, learning_rate=1e-2, logging_steps=5,
        report_to=[], save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, lr_scheduler_type="constant",
        train_sampling_strategy="sequential",
    )
    Seq2SeqTrainer(T5ForConditionalGeneration(config), args, train_dataset=Rows()).train()
    print("trained")


if __name__ == "__main__":
    main()
"""

LIGHTNING = """
import sys

import torch
from lightning.pytorch import LightningModule, Trainer


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def training_step(self, batch, index):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(160, 8)
    y = (x[:, 0] > 0).long()
    x[51, 2] = float("nan")
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", default_root_dir=sys.argv[1], enable_progress_bar=False, logger=False,
        enable_checkpointing=False, enable_model_summary=False,
    )
    trainer.fit(Model(), rows)
"""

ACCELERATE = """
import sys

import torch
from accelerate import Accelerator

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, project_dir=sys.argv[1])
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x = torch.randn(160, 8)
y = (x[:, 0] > 0).long()
x[51, 2] = float("nan")
rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
for x, y in rows:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
print("finite:", all(bool(torch.isfinite(p).all()) for p in model.parameters()))
"""
