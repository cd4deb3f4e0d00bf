"""Settings are found again whatever a framework calls them."""

import subprocess
import sys
import time

from stayfinite.core.settings import Expression, Setting, Settings, plain_name


def settings(**more):
    return Settings(
        [Setting(name.replace("__", "."), value, "file", line) for line, (name, value) in enumerate(more.items(), 1)]
    )


def test_names_are_compared_without_dashes_dots_and_capitals():
    assert plain_name("--model.Learning-Rate") == "model_learning_rate"
    assert settings(**{"--Learning-Rate": 1}).value("learning_rate") == 1


def test_a_name_finds_what_ends_in_it():
    some = settings(optimizer__params__lr=1, fp16__enabled=True, torch_dtype="float16")
    assert some.value("lr") == some.value("params_lr") == some.value("params.lr") == 1
    assert some.value("fp16_enabled") is some.value("fp16.enabled") is True
    assert some.value("dtype") == "float16"
    assert some.value("fp16") is None


def test_a_word_in_front_may_make_it_something_else():
    some = settings(min_lr=1, per_device_eval_batch_size=2, bnb_4bit_compute_dtype="float16", no_fp16=True)
    assert [some.find(name) for name in ("lr", "batch_size", "dtype", "fp16")] == [None] * 4
    assert some.value("compute_dtype") == "float16"
    assert settings(per_device_train_batch_size=4).value("batch_size") == 4
    assert settings(min_lr=1).value("min_lr") == 1


def test_a_whole_step_comes_before_a_part_of_one():
    assert settings(base_lr=1, optimizer__lr=2).value("lr") == 2
    assert [each.value for each in settings(base_lr=1, optimizer__lr=2).all("lr")] == [1, 2]


def test_the_first_name_that_is_set_wins():
    assert settings(b=2, a=1).value("c", "a", "b") == 1
    assert settings(b=2).value("x", "y") is None


def test_known_before_default_before_expression():
    expression = Setting("Args.lr", Expression("args.lr"), "f")
    default = Setting("--lr", 0.1, "f", kind="default")
    explicit = Setting("run.lr", 0.2, "f")
    assert Settings([expression, default, explicit]).value("lr") == 0.2
    assert Settings([expression, default]).value("lr") == 0.1
    assert Settings([expression]).value("lr") == "args.lr"


def test_all_keeps_the_order_of_reading():
    some = settings(a__lr=1, fp16=True, b__lr=2)
    assert [each.name for each in some.all("fp16", "lr")] == ["a.lr", "fp16", "b.lr"]


def test_sums_search_and_texts():
    both = settings(lr=1) + Settings(notes=[("x:1", "uses Apex O2")])
    assert both.search("apex") == ("x:1", "uses Apex O2")
    assert both.search("lr: 1") == ("file:1", "lr: 1")
    assert both.search("nothing") is None
    assert list(both.texts()) == [("x:1", "uses Apex O2"), ("file:1", "lr: 1")]
    assert both
    assert not Settings()
    assert len(both) == 1


def test_hundreds_of_questions_to_thousands_of_settings_are_quick():
    many = Settings([Setting(f"section{number % 50}.part.name_{number}", number, "f") for number in range(5000)])
    began = time.process_time()
    for number in range(2000):
        many.find(f"name_{number}", "lr", "fp16")
    assert time.process_time() - began < 1.0


def test_importing_the_readers_is_light():
    code = """
import sys, time
began = time.process_time()
import stayfinite.readers.configs
assert time.process_time() - began < 0.3
heavy = {"torch", "numpy", "yaml", "ast", "zipfile", "pickletools", "tomllib", "rich"} & set(sys.modules)
assert not heavy - {"ast"}, heavy
"""
    subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"], check=True)
