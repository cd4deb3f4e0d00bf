"""An export loads with transformers alone, where stayfinite cannot be imported, and answers as the run does."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from image_pairs import small_settings
from mmdit_runs import run as train_mmdit
from mmdit_runs import write_data
from recipe_job import quiet
from stayfinite.cli.export import run as export_command
from stayfinite.errors import UsageError
from stayfinite.recipes import compare, mt5, sft, translate
from stayfinite.recipes.exporting.exporting import export
from strict_schemas import strict
from tiny_language import settings as mt5_settings
from tiny_language import tiny_model, write_texts
from tiny_translations import quick_settings

pytestmark = pytest.mark.usefixtures("one_thread")

ALONE = """
import json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "stayfinite":
            raise ImportError("stayfinite cannot be imported here")
sys.meta_path.insert(0, Blocked())
import torch
torch.set_num_threads(1)
kind, place, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
import transformers
transformers.logging.disable_progress_bar()
tokenizer = transformers.AutoTokenizer.from_pretrained(place)
model = getattr(transformers, kind).from_pretrained(place)
said = []
for text in texts:
    if isinstance(text, list):
        asked = tokenizer.apply_chat_template(text, add_generation_prompt=True, return_dict=True, return_tensors="pt")
        row = model.generate(**asked)[0, asked["input_ids"].shape[1]:]
    else:
        row = model.generate(**tokenizer(text, return_tensors="pt"))[0]
    said.append(tokenizer.decode(row, skip_special_tokens=True).strip())
print(json.dumps({"said": said, "ids": [tokenizer(str(text)).input_ids for text in texts]}))
"""


def asked_alone(kind, place, texts):
    done = subprocess.run(
        [sys.executable, "-I", "-c", ALONE, kind, str(place), json.dumps(texts)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translate")
    translate.train(quick_settings(folder, prefix="to English: ", check="off"), quiet)
    return folder / "run"


@pytest.fixture(scope="module")
def chatted(tmp_path_factory):
    place = tmp_path_factory.mktemp("sft") / "run"
    small = {
        "rows": 48, "held_out": 8, "epochs": 2, "batch_size": 16, "eval_epochs": 2, "samples": 0, "rank": 4,
        "check": "off", "device": "cpu", "output_dir": str(place), "system": "Be brief.",
    }  # fmt: skip
    sft.train(replace(sft.settled(sft.Sft()), **small), quiet)
    return place


@pytest.mark.slow
def test_a_translation_model_says_the_same_without_us(translated, tmp_path, capsys):
    from stayfinite.recipes.seq2seq.translating import find_model, load_translator

    assert export_command([str(translated), "-o", str(tmp_path / "out")]) == 0
    assert "from transformers import" in capsys.readouterr().out
    assert export_command([str(translated), "-o", str(tmp_path / "out"), "--force", "--json"]) == 0
    strict("export").validate(json.loads(capsys.readouterr().out))
    sources = ["udu", "gar masu", "lugar eku"]
    ours = load_translator(find_model(str(translated)), device="cpu", batch_size=1)
    beams = json.loads((translated / "run.json").read_text())["config"]["beams"]
    expected = ours.translate(sources, beams=beams)
    alone = asked_alone("AutoModelForSeq2SeqLM", tmp_path / "out", ["to English: " + source for source in sources])
    assert alone["said"] == expected
    assert alone["ids"] == [ours.evaluation.tokenizer("to English: " + source).input_ids for source in sources]


def test_the_best_model_alone_translates_and_is_said_to_need_no_export(translated, tmp_path):
    from stayfinite.recipes.seq2seq.translating import find_model, load_translator

    copied = shutil.copytree(translated / "best", tmp_path / "copied")  # all that is left of a tokenizer trained here
    ours, theirs = (
        load_translator(find_model(str(each)), device="cpu", batch_size=1).translate(["udu", "gar masu"], beams=1)
        for each in (translated, copied)
    )
    assert ours == theirs
    with pytest.raises(UsageError, match=r"copied is a model without its run.*\n.*transformers loads it as it is"):
        export(str(copied), str(tmp_path / "out"), say=quiet)


def test_the_card_has_the_runs_own_figures(translated, tmp_path):
    export(str(translated), str(tmp_path / "out"), say=quiet)
    card = (tmp_path / "out" / "README.md").read_text()
    result = json.loads((translated / "result.json").read_text())
    rows = json.loads((translated / "run.json").read_text())["data"]
    for words in (
        f"| steps taken | {result['steps']:,} |", f"| training rows | {rows['training_rows']} |",
        "| train | pairs.csv |", "`to English: `", "nfc, spaces", f"| rows | {result['scores']['rows']} |",
    ):  # fmt: skip
        assert words in card, words
    assert str(translated) not in card
    assert not (tmp_path / "out" / "translate.json").exists()


@pytest.mark.slow
def test_an_adapter_is_merged_and_answers_the_same_without_us(chatted, tmp_path):
    from stayfinite.recipes.chat.chatting import Chat
    from stayfinite.recipes.chat.evaluating import generate
    from stayfinite.recipes.chat.using import make_ready

    done = export(str(chatted), str(tmp_path / "out"), merge=True, say=quiet)
    assert done.kind == "merged model"
    assert "adapter_config.json" not in done.files
    questions = ["How many g is 2 kg?", "How many m is 7 km?"]
    ready = make_ready(Chat(adapter=str(chatted / "best"), device="cpu", precision="fp32"), None)
    expected = generate(
        ready.model, ready.prompting, questions, new_tokens=ready.new_tokens, limit=ready.limit, batch_size=1
    )
    chats = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}] for text in questions]
    assert asked_alone("AutoModelForCausalLM", tmp_path / "out", chats)["said"] == [text.strip() for text in expected]


def test_an_adapter_on_a_base_that_only_the_run_has_needs_merging(chatted, tmp_path):
    with pytest.raises(UsageError, match="others cannot load its base") as caught:
        export(str(chatted), str(tmp_path / "out"), say=quiet)
    assert "--merge" in str(caught.value.fix)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("force", [False, True])
def test_what_others_put_there_is_never_overwritten(translated, tmp_path, force):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("my notes")
    with pytest.raises(UsageError, match="are not an export" if force else "is not empty"):
        export(str(translated), str(tmp_path / "mine"), force=force, say=quiet)
    with pytest.raises(UsageError, match="is the run itself"):
        export(str(translated), str(translated / "best"), force=force, say=quiet)
    assert (tmp_path / "mine" / "README.md").read_text() == "my notes"


def test_an_export_is_replaced_when_asked_and_written_whole_or_not_at_all(translated, tmp_path, monkeypatch):
    export(str(translated), str(tmp_path / "out"), say=quiet)
    (tmp_path / "out" / "mark").write_text("of the first")
    export(str(translated), str(tmp_path / "out"), force=True, say=quiet)
    assert not (tmp_path / "out" / "mark").exists()
    monkeypatch.setattr("stayfinite.recipes.exporting.exporting.card", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(str(translated), str(tmp_path / "other"), say=quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(UsageError, match=r"run.json is missing"):
        export(str(tmp_path), str(tmp_path / "out"), say=quiet)
    (tmp_path / "run.json").write_text('{"recipe": "sft", "config": {}}')
    with pytest.raises(UsageError, match="has no model yet"):
        export(str(tmp_path), str(tmp_path / "out"), say=quiet)


@pytest.mark.slow
def test_a_language_model_with_a_tokenizer_of_its_own_says_the_same_without_us(tmp_path):
    from stayfinite.recipes.seq2seq.tokenizers import load_tokenizer

    texts, model = write_texts(tmp_path / "texts"), tiny_model(tmp_path / "model")
    mt5.train(mt5_settings(texts, model, tmp_path / "run"), quiet)
    export(str(tmp_path / "run"), str(tmp_path / "out"), say=quiet)
    prompts = ["The train <extra_id_0> the town.", "Xerxes eats <extra_id_0>"]
    alone = asked_alone("AutoModelForSeq2SeqLM", tmp_path / "out", prompts)
    tokenizer = load_tokenizer(str(tmp_path / "run" / "best"))
    from transformers import AutoModelForSeq2SeqLM

    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run" / "best")
    rows = [ours.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=64)[0] for text in prompts]
    assert alone["said"] == [tokenizer.decode(row, skip_special_tokens=True).strip() for row in rows]
    assert alone["ids"] == [tokenizer(text).input_ids for text in prompts]


LOOKING = """
import json, sys
sys.modules["stayfinite"] = None
import torch, transformers
from PIL import Image
torch.set_num_threads(1)
place, prompt = sys.argv[1:]
model = transformers.AutoModelForImageTextToText.from_pretrained(place).eval()
processor = transformers.AutoProcessor.from_pretrained(place)
images = [Image.new("RGB", (16, 16), color) for color in ("red", "white")]
with torch.no_grad():
    logits = model(**processor(text=prompt, images=images, return_tensors="pt")).logits
print(json.dumps(logits[0, -1].tolist()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_a_model_that_compares_images_sees_the_same_without_us(tmp_path, tuning):
    from PIL import Image

    from stayfinite.recipes.images.models import assembled, load_processor, load_trained

    config = small_settings(tmp_path, tuning=tuning)
    compare.train(config, quiet)
    export(str(tmp_path / "run"), str(tmp_path / "out"), merge=tuning == "lora", say=quiet)
    best = tmp_path / "run" / "best"
    prompt = json.loads((best / "compare.json").read_text())["prompt"]
    command = [sys.executable, "-I", "-c", LOOKING, str(tmp_path / "out"), prompt]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    model, processor = assembled(config, torch.device("cpu")), load_processor(str(best))
    load_trained(model, best)
    images = [Image.new("RGB", (16, 16), color) for color in ("red", "white")]
    with torch.no_grad():
        expected = model.eval()(**processor(text=prompt, images=images, return_tensors="pt")).logits[0, -1]
    seen = torch.tensor(json.loads(done.stdout.splitlines()[-1]))
    torch.testing.assert_close(seen, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_mmdit_is_weights_and_a_config_and_says_so(tmp_path):
    train_mmdit(write_data(tmp_path / "data"), tmp_path / "run")
    done = export(str(tmp_path / "run"), str(tmp_path / "out"), say=quiet)
    assert done.kind == "weights"
    assert {"model.safetensors", "config.json", "README.md"} <= set(done.files)
    assert "Not a transformers model" in Path(tmp_path / "out" / "README.md").read_text()
