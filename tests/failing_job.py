"""Run under torchrun: rank 1 fails by itself, the others wait for it; each prints the error that it ends with."""

from __future__ import annotations

import time

from stayfinite.errors import StayfiniteError, UsageError
from stayfinite.recipes.running.processes import place_of_process

try:
    with place_of_process("cpu") as place:
        place.wait()
        if place.rank == 1:
            raise UsageError("pairs.csv is gone", fix="put it back")
        place.wait()
except StayfiniteError as error:
    print(f"rank {place.rank} ends with: {error}", flush=True)
    time.sleep(2)  # torchrun ends the others as soon as one has ended
