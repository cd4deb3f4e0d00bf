"""Run lanes side by side over the same batches, one thread each."""

import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Thread

from stayfinite.demo.lanes import Lane, Progress
from stayfinite.demo.task import Batch


def race(lanes: Sequence[Lane], batches: Sequence[Batch], seconds: dict[str, float]) -> Iterator[Progress]:
    """Train every lane on every batch and yield each step when it is done.

    Lanes share nothing, so their results are independent. An error in one ends all and is raised here; leaving the loop
    early ends them too. `seconds` receives the CPU time of each lane.
    """
    news: SimpleQueue[Progress | BaseException | None] = SimpleQueue()
    stop = Event()
    threads = [Thread(target=_run, args=(lane, batches, news, stop, seconds), name=lane.name) for lane in lanes]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            each = news.get()
            if isinstance(each, BaseException):
                raise each
            if each is None:
                running -= 1
            else:
                yield each
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _run(
    lane: Lane,
    batches: Sequence[Batch],
    news: "SimpleQueue[Progress | BaseException | None]",
    stop: Event,
    seconds: dict[str, float],
) -> None:
    try:
        try:
            for batch in batches:
                if stop.is_set():
                    break
                news.put(lane.train(batch))
        finally:
            seconds[lane.name] = time.thread_time()
            lane.close()
    except BaseException as error:
        news.put(error)
    finally:
        news.put(None)
