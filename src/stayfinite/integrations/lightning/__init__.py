"""Lightning: ``Trainer(callbacks=[StayFinite()])``, or ``fabric_guard(fabric, model, optimizer)``.

Example:
    >>> from stayfinite.integrations.lightning import StayFinite
    >>> trainer = Trainer(callbacks=[StayFinite()])
    >>> trainer.fit(module, loader)
"""

from stayfinite.integrations.lightning.callback import FabricGuard, NotGuarded, StayFinite, fabric_guard

__all__ = ["FabricGuard", "NotGuarded", "StayFinite", "fabric_guard"]
