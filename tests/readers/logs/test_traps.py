"""How real logs are dirty: colors, carriage returns, prefixes, ranks, encodings, half lines, monsters."""

from __future__ import annotations

import pytest

from readers.logs.reading_text import points_of, series_of


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[rank0]: ",
        "[rank0]:",
        "[Rank 0] ",
        "[0]: ",
        "[0]:",
        "0: ",
        "[default0]:",
        "[1,0]<stdout>:",
        "(RayTrainWorker pid=4711, ip=10.0.0.1) ",
        "2024-05-06 07:08:09,123 - INFO - ",
        "[2024-05-06 07:08:09,123][INFO] ",
        "2024-05-06T07:08:09.123Z ",
        "05/06/2024 07:08:09 - INFO - __main__ - ",
        "[07:08:09] ",
        "I0506 07:08:09.123456 99 train.py:12] ",
        "May 06 07:08:09 host train[123]: ",
        "Mon May  6 07:08:09 2024 ",
        "[rank0]: 2024-05-06 07:08:09 INFO ",
        "2024-05-06 07:08:09 [rank0]: ",
        "INFO:root:",
        "\x1b[32mINFO\x1b[0m \x1b[1m",
        "[INFO|trainer.py:99] 2024-05-06 07:08:09,123 >> ",
    ],
)
def test_whatever_stands_before_a_line_it_is_read(prefix: str) -> None:
    text = "".join(f"{prefix}step {i} | loss {i}.5 | lr 1e-4\n" for i in (8, 9, 10, 100))
    (series,) = series_of(text)
    assert points_of(series) == [{"step": float(i), "loss": i + 0.5, "lr": 1e-4} for i in (8, 9, 10, 100)]


def test_messages_lose_colours_timestamps_and_rank() -> None:
    text = "[rank1]: 2024-05-06 07:08:09,123 \x1b[31mERROR\x1b[0m something failed\n"
    found = [(series.rank, message.text, message.rank) for series in series_of(text) for message in series.messages]
    assert found == [(1, "ERROR something failed", 1)]


@pytest.mark.parametrize("rank", ["", "rank 1: "])
def test_what_the_guard_says_of_a_step_is_no_measurement_and_no_message(rank: str) -> None:
    refused = (
        f"stayfinite: {rank}step 2 refused, loss-not-finite: loss is nan; 1 of 4 gradients is NaN or infinite\n"
        f"stayfinite: {rank}step 3 refused, rolled back (from step 3, to step 1), vetoes-in-a-row: loss 304.1\n"
        f"stayfinite: {rank}step 2 refused (loss-not-finite): the loss is NaN; 1 of 4 gradients is NaN or inf.\n"
        f"stayfinite: {rank}step 3 refused, rolled back from step 3 to step 1: loss 304.1\n"
        f"stayfinite: {rank}step 3 bounded, unusual-gradient: grad norm 620.5 (median of 92 steps 1.2), loss 193\n"
        f"stayfinite: {rank}step 3: rolled back to step 1. Loss 0.04 -> 3722 since step 2; the loss was 0.026.\n"
        f"stayfinite: {rank}step 3: new phase. Loss 1.31 -> 2.9 since step 2 (8 steps). Training continues.\n"
    )
    (series,) = series_of(f"step 1 | loss 1.5\n{refused}step 4 | loss 1.25\n")
    assert points_of(series) == [{"step": 1.0, "loss": 1.5}, {"step": 4.0, "loss": 1.25}]
    assert not series.messages


def test_what_the_guard_says_of_a_step_that_was_taken_is_read() -> None:
    (series,) = series_of("step 1 | loss 1.5\nstayfinite: step 2 taken, loss-not-finite: loss is nan\n")
    assert [point.bad for point in series.points] == [False, True]


def test_interleaved_ranks_are_told_apart() -> None:
    text = "starting\n" + "".join(f"[rank{r}]: step {i} loss {i + r}.0\n" for i in range(30) for r in (1, 0, 3))
    found = series_of(text)
    assert [series.rank for series in found] == [0, 1, 3]
    for series in found:
        assert series.rank is not None
        assert [point.loss for point in series.points] == [float(i + series.rank) for i in range(30)]
    assert [message.text for message in found[0].messages] == ["starting"]


def test_a_hundred_interleaved_ranks_need_no_shape_each() -> None:
    found = series_of("".join(f"{r}: step {i} loss {r}.0\n" for i in range(5) for r in range(100)))
    assert len(found) == 100
    assert all(len(series) == 5 for series in found)


def test_a_bar_without_numbers_tells_where_the_run_stands() -> None:
    text = (
        "Map: 100%|##########| 900/900 [00:01<00:00, 800.00 examples/s]\n"
        "  2%|2         | 10/400 [00:05<02:41,  2.40it/s]\r  3%|3         | 11/400 [00:05<02:41,  2.40it/s]\n"
        "{'loss': 1.5, 'learning_rate': 1e-4, 'epoch': 0.03}\n"
        "100%|##########| 20/20 [00:05<00:00,  2.40it/s]\n"
        "{'eval_loss': 1.25, 'epoch': 0.03}\n"
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 8, reducing to 4\n"
    )
    (series,) = series_of(text)
    assert [point.step for point in series.points] == [11.0, 11.0]
    assert series.metrics["eval_loss"].steps == [11.0]
    assert series.total_steps == 400.0
    assert [message.count for message in series.messages] == [1]


def test_every_state_of_a_bar_with_numbers_is_a_point_of_one_line() -> None:
    text = "".join(f"\rEpoch 0:  10%|#  | {i}/50 [00:0{i}<00:50, 1.00it/s, loss={i}.25, v_num=7]" for i in range(1, 6))
    (series,) = series_of(f"{text}\nstep 6 loss 1.0\n")
    assert [(point.line, point.loss) for point in series.points] == [
        (1, 1.25),
        (1, 2.25),
        (1, 3.25),
        (1, 4.25),
        (1, 5.25),
        (2, 1.0),
    ]


def test_windows_line_ends() -> None:
    (series,) = series_of("step 1 loss 2.5\r\nstep 2 loss 1.5\r\n\r\nfinished\r\n")
    assert [(point.line, point.loss) for point in series.points] == [(1, 2.5), (2, 1.5)]
    assert [(message.line, message.text) for message in series.messages] == [(4, "finished")]
    assert series.lines == 4


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_encodings(encoding: str) -> None:
    text = "größer\n" + "".join(f"step {i} loss {i}.5\n" for i in range(5))
    data = text.encode(encoding)
    (series,) = series_of(b"\xff\xfe" + data if encoding == "utf-16-le" else data)
    assert [point.loss for point in series.points] == [i + 0.5 for i in range(5)]


def test_nul_bytes_are_passed_over() -> None:
    (series,) = series_of(b"\0" * 5000 + b"step 1 loss 2.5\nstep 2 \0\0loss 1.5\n")
    assert [point.loss for point in series.points] == [2.5, 1.5]


def test_a_half_line_at_the_end_is_read_as_far_as_it_goes() -> None:
    (series,) = series_of("step 1 loss 2.5\nstep 2 loss 1.5")
    assert [point.loss for point in series.points] == [2.5, 1.5]
    (series,) = series_of("{'loss': 2.5, 'epoch': 0.1}\n{'loss': 2.5, 'ep")
    assert len(series) == 1


def test_a_line_of_a_hundred_million_characters_costs_little_memory() -> None:
    import tracemalloc

    from stayfinite.readers.logs import LogReader

    reader = LogReader("train.log")
    block = b"x" * (1 << 20)
    tracemalloc.start()
    reader.feed(b"step 1 loss 2.5\nstart ")
    for _ in range(100):
        reader.feed(block)
    reader.feed(b" end\nstep 2 loss 1.5\n")
    reader.close()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (series,) = reader.series
    assert peak < 16 << 20
    assert [(point.line, point.loss) for point in series.points] == [(1, 2.5), (3, 1.5)]
    (message,) = series.messages
    assert message.text.startswith("start x")
    assert message.text.endswith("x end")


def test_a_missing_loss_in_a_neox_line_is_nan_only_once_it_was_seen() -> None:
    line = " iteration {}/ 90 | learning rate: 1.0E-05 | {}loss scale: 1.0 | number of nan iterations: 0 |\n"
    text = line.format(1, "") + line.format(2, "lm_loss: 2.5E+00 | ") + line.format(3, "")
    losses = [point.loss for point in series_of(text)[0].points]
    assert losses[0] is None
    assert losses[1] == 2.5
    assert losses[2] != losses[2]


def test_nan_iterations_in_bf16_are_taken_and_not_skipped_by_a_scaler_that_is_not_there() -> None:
    line = " iteration {}/ 90 | lm loss: {} | loss scale: {} | number of nan iterations: {} |\n"
    good, bad = line.format(1, "2.5E+00", "{0}", 0), line.format(2, "2.4E+00", "{0}", 7)
    for scale, skipped in (("1.0", False), ("4096.0", True)):
        points = series_of((good + bad).format(scale))[0].points
        assert [point.skipped for point in points] == [False, skipped]


def test_a_live_log_can_be_looked_at_at_any_time() -> None:
    from stayfinite.readers.logs import LogReader

    reader = LogReader("train.log")
    assert points_of(reader.series[0]) == []
    reader.feed("step 1 loss 2.5\nstep 2 lo")
    assert points_of(reader.series[0]) == [{"step": 1.0, "loss": 2.5}]
    reader.feed("ss 1.5\n")
    assert points_of(reader.series[0])[-1] == {"step": 2.0, "loss": 1.5}
    reader.feed("noise\n" * 2000)
    reader.feed(b"step 3 loss nan\n")
    assert [point.step for point in reader.series[0].points] == [1.0, 2.0, 3.0]
    assert reader.series[0].messages[0].count == 2000


def test_a_bar_that_never_ends_its_line_is_read_as_it_comes() -> None:
    from stayfinite.readers.logs import LogReader

    reader = LogReader("train.log")
    reader.feed("starting\n" + "noise " * 1000 + "\n")
    for i in range(5000):
        reader.feed(f"\rEpoch 0:  10%|#  | {i}/5000 [00:01<00:50, 1.00it/s, loss={i}.25, v_num=7]")
    assert reader.series[0].points_seen >= 4998
    reader.close()
    assert reader.series[0].points_seen == 5000
    assert {point.line for point in reader.series[0].points} == {3}


def test_what_is_printed_behind_a_bar_is_read_by_itself() -> None:
    bar = " 14%|█▍        | 37{}/2724 [13:58:09<86:18:35, 132.44s/it]"
    text = (
        f"{bar.format(8)}[2023-06-07 22:16:00,018] [INFO] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
        "Attempted loss scale: 64, reducing to 32\n"
        f'{bar.format(9)}Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nValueError: no\n'
    )
    (series,) = series_of(text)
    assert points_of(series) == [{"step": 378.0, "loss_scale": 32.0, "skipped": True}]
    assert series.total_steps == 2724.0
    texts = [message.text for message in series.messages]
    assert texts[0].startswith("[INFO] [deepspeed] OVERFLOW!")
    assert any(text.startswith("Traceback") and text.endswith("ValueError: no") for text in texts)


def test_parts_of_a_loss_stand_for_it_only_where_the_whole_is_not_told() -> None:
    parts = "".join(f"Epoch: {i} mask_loss: 0.5 size_loss: {v}\n" for i, v in enumerate((1.0, "nan", 2.0)))
    losses = [point.loss for point in series_of(parts)[0].points]
    assert losses[0] == 1.5
    assert losses[1] != losses[1]
    assert losses[2] == 2.5
    mixed = series_of("step 1 loss 2.0\n" + parts)[0]
    assert [point.loss for point in mixed.points] == [2.0]
    assert len(mixed.metrics["mask_loss"].values) == 3


def test_lines_cut_out_of_a_json_file() -> None:
    series = series_of('      "eval_logits/rejected": NaN,\n      "loss": 0.0,\n      "lr_scheduler_gamma": 0.5,\n')[0]
    assert points_of(series) == [{"loss": 0.0}]
    assert list(series.metrics) == ["eval_logits/rejected"]
    assert len(series.messages) == 1


def test_a_row_of_a_table_with_empty_cells_is_read_by_its_place() -> None:
    text = (
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
        "      3/100                   nan        0.5        0.5                    640\n"
    )
    series = series_of(text)[0]
    assert [(point.epoch, point.bad) for point in series.points] == [(3.0, True)]
    assert series.metrics["cls_loss"].values == [0.5]


def test_the_same_nan_warning_counts_each_time() -> None:
    series = series_of("WARNING: grad norm is nan. Do not update model.\n" * 5)[0]
    assert len(series) == 5
    assert series.messages[0].count == 5


def test_a_word_where_a_number_stood_makes_another_message() -> None:
    text = "".join(f"Epoch {i} begins\n" for i in range(30)) + "Epoch fails begins\n"
    assert [message.count for message in series_of(text)[0].messages] == [30, 1]


def test_bars_of_other_work_are_neither_points_nor_messages_nor_positions() -> None:
    text = "".join(f"\rMap:  {i}%|#         | {i}0/1000 [00:00<00:00, 99.{i} examples/s]" for i in range(60))
    text += "\nValidating:  50%|#    | 5/10 [00:00<00:00, 1.00it/s]\n{'loss': 1.5, 'epoch': 0.1}\n"
    (series,) = series_of(text)
    assert points_of(series) == [{"loss": 1.5, "epoch": 0.1}]
    assert not series.messages
    assert series.total_steps is None


def test_a_tutorials_share_of_the_run_stands_between_step_and_loss() -> None:
    text = "5000 5% (0m 12s) 2.9460 Gil / Portuguese x (Korean)\n10000 10% (0m 24s) 2.9493 Ha / Korean ok\n"
    (series,) = series_of(text)
    assert points_of(series) == [{"step": 5000.0, "loss": 2.946}, {"step": 10000.0, "loss": 2.9493}]


def test_a_rate_in_a_line_of_scores_does_not_hide_them() -> None:
    (series,) = series_of("".join(f"global step {i}00 lr 1 wps 7.44K ppl 1.15 bleu 0.00\n" for i in (1, 2, 3)))
    assert series.metrics["bleu"].values == [0.0, 0.0, 0.0]
