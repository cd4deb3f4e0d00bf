"""Loader workers return the same rows or random numbers.

## What it means
Each worker process of a DataLoader is a copy of the first one. Where a streamed dataset does not ask which worker it is
in, every worker reads all of it: each row comes once a worker, and an epoch is that many times too long. Where random
numbers come from a generator that was copied along, or is seeded alike in every worker, all workers draw the same
augmentations, crops and noise.

## Why it happens
- An `IterableDataset` whose `__iter__` does not look at `torch.utils.data.get_worker_info()`.
- A `numpy.random.Generator`, `RandomState` or `torch.Generator` made in the dataset's `__init__`: each worker has a
  copy in the same state.
- A `worker_init_fn` that seeds with a constant, or with the global seed and without the worker's number.
- numpy's global generator in torch before 1.9, which did not seed it for each worker.

## How to recognize it
- With `num_workers=4` the first four batches of a stream are equal.
- The same row, asked for in two workers, comes with the same noise, though it comes with other noise each time.
- An epoch has more steps with workers than without.

## How to fix it
- Streams: `info = get_worker_info(); return islice(rows, info.id, None, info.num_workers)` (or
  `datasets.IterableDataset`, which splits automatically when it has as many shards as workers).
- Generators: make them at the first use in a worker, from `torch.initial_seed()`, which is different in each:
  `self.rng = numpy.random.default_rng(torch.initial_seed())`.
- `worker_init_fn=lambda worker: numpy.random.seed(torch.initial_seed() % 2**32)`, or leave it out: torch seeds
  python's, numpy's and its own global generator for each worker.
- Lightning: `seed_everything(seed, workers=True)`.

## When it is a false alarm
Noise that is meant to be a function of the row's number is the same wherever the row is read.
"""

from stayfinite.rules.rule import FAIR, STRONG, Rule

RULE = Rule(
    code="SF320",
    severity="warning",
    fix="split a stream by get_worker_info(), and seed generators in each worker from torch.initial_seed()",
    proofs={
        # The number of workers of a streamed dataset that all give the same rows, else 0.
        "loader.workers_repeat": "the first batches of all {} workers are equal",
        # The number of workers that draw the same random numbers, else 0.
        "loader.workers_draw_alike": "two workers use the same random seed",
    },
    beats=("duplicate-rows",),
    warns={
        r"not properly configuring the iterabledataset replica": STRONG + FAIR,
        r"each worker is not configured independently to avoid having duplicate data": STRONG + FAIR,
    },
)
