"""Scripts of torch, Lightning and OpenMMLab that work: none of them may be warned of."""

SCRIPTS: dict[str, str] = {}

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

SCRIPTS["prompt_tuning.py"] = """
from peft import PromptTuningConfig, get_peft_model
import torch
config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=8)
model = get_peft_model(AutoModelForCausalLM.from_pretrained("bigscience/bloomz-560m"), config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
num_epochs = 50
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

SCRIPTS["softmax_elsewhere.py"] = """
import torch
import torch.nn.functional as F
from torch import nn

class Gate(nn.Module):
    def forward(self, x):
        return F.softmax(self.score(x), dim=-1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        x = self.last((self.gate(x).unsqueeze(-1) * self.experts(x)).sum(1))
        if not self.training:
            x = F.softmax(x, dim=1)
        return x

model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

def train(loader):
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        auc.update(torch.softmax(out, dim=1)[:, 1], y)

@torch.no_grad()
def evaluate(loader):
    for x, y in loader:
        out = F.softmax(model(x), dim=1)
        scores.append(out)

def predict(x):
    return F.softmax(model(x), dim=1)
"""

SCRIPTS["gradients_taken_off_by_hand.py"] = """
import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    for parameter in model.parameters():
        parameter.grad = None
"""

SCRIPTS["gradients_zeroed_in_place.py"] = """
import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
while step < 1000:
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    for parameter in model.parameters():
        parameter.grad.data.zero_()
"""
