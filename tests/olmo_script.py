"""Somebody's OLMo-core script, as it is: no word of stayfinite in it. ``olmo_script.py FOLDER [BAD STEP]``"""

import sys

import torch
from olmo_core.data.data_loader import DataLoaderBase
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.optim import AdamWConfig
from olmo_core.train import Duration, TrainerConfig
from olmo_core.train.train_module import TransformerTrainModuleConfig


class Tokens(DataLoaderBase):
    total_batches = 40

    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        pass

    def reshuffle(self, epoch=None, **_):
        self._epoch = epoch or 1

    def _batch(self, number):
        drawing = torch.Generator().manual_seed(number)
        return {"input_ids": torch.randint(0, 64, (4, 1), generator=drawing) + torch.arange(16) & 63}

    def _iter_batches(self):
        return map(self._batch, range(self.total_batches))

    def get_mock_batch(self):
        return self._batch(0)


folder, bad = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
torch.manual_seed(0)
shape = TransformerConfig.llama_like(d_model=16, vocab_size=64, n_layers=2, n_heads=2, hidden_size_multiple_of=8)
module = TransformerTrainModuleConfig(
    rank_microbatch_size=64, max_sequence_length=16, optim=AdamWConfig(lr=1e-3), max_grad_norm=1.0
).build(shape.build(init_device="cpu"), device=torch.device("cpu"))
loader = Tokens(work_dir=f"{folder}/work", global_batch_size=64)
trainer = TrainerConfig(
    save_folder=f"{folder}/save", work_dir=f"{folder}/work", max_duration=Duration.steps(20), no_checkpoints=True
).build(module, loader)
head = module.model.lm_head
head.register_forward_hook(
    lambda _, __, out: out._replace(loss=out.loss * float("nan")) if trainer.global_step == bad else out
)
trainer.fit()
print("trained", all(torch.isfinite(p).all() for p in module.model.parameters()))
