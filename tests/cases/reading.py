"""The labelled logs that rules were written with; they live in benchmarks/failures/logs/known."""

from benchmarks.failures.logs.reading import LogCase, read_set


def read_cases(folder: str) -> list[LogCase]:
    return read_set("known", folder)
