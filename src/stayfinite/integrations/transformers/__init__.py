"""A guard in transformers' Trainer, by one line.

Example:
    >>> from stayfinite.integrations.transformers import StayFinite
    >>> trainer = Trainer(model, args, train_dataset=data, callbacks=[StayFinite()])
    >>> trainer.train()

Works with Trainer, Seq2SeqTrainer and subclasses such as trl's SFTTrainer and DPOTrainer.
"""

from stayfinite.integrations.transformers.callback import NotGuarded, StayFinite

__all__ = ["NotGuarded", "StayFinite"]
