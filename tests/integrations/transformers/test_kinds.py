"""Models, adapters and trainers of other kinds: compiled, peft, 8-bit, trl, and loggers that show what was refused."""

import json
import math

import pytest
import torch
from transformers import LlamaForCausalLM, Trainer

from stayfinite.core.policy import Policy
from stayfinite.integrations.transformers import NotGuarded, StayFinite
from tiny_trainers import (
    Faulty,
    Tokens,
    arguments,
    events,
    finite,
    same,
    tiny_llama,
    tiny_t5,
    tiny_trainer,
    trained,
    weights,
)

SEQUENTIAL = {"train_sampling_strategy": "sequential"}


class TwoLayers(torch.nn.Module):
    """A model that is none of transformers'."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = torch.nn.Linear(16, 8), torch.nn.Linear(8, 24)

    def forward(self, inputs_embeds, labels):
        said = self.down(torch.tanh(self.up(inputs_embeds)))
        return {"loss": torch.nn.functional.cross_entropy(said.transpose(1, 2), labels), "logits": said}


@pytest.mark.slow
@pytest.mark.parametrize("build", [TwoLayers, pytest.param(tiny_t5, marks=pytest.mark.timeout(1800))])
def test_a_compiled_model_is_guarded_and_explained(tmp_path, build):
    settings = {"torch_compile": True, "torch_compile_backend": "aot_eager", "max_steps": 10}
    plain = trained(tmp_path / "plain", model=build(), **settings)
    torch._dynamo.reset()
    guarded = trained(tmp_path / "guarded", StayFinite(), model=build(), **settings)
    assert same(weights(plain), weights(guarded))
    torch._dynamo.reset()
    spoilt = trained(tmp_path / "spoilt", StayFinite(), model=build(), bad=(51,), **settings, **SEQUENTIAL)
    assert finite(spoilt)
    found = json.loads((tmp_path / "spoilt" / "stayfinite" / "incidents" / "0001" / "autopsy.json").read_text())
    assert found["cause"] == "bad-data-row"


def adapted():
    from peft import LoraConfig, get_peft_model

    return get_peft_model(tiny_t5(), LoraConfig(r=4, target_modules=["q", "v"], task_type="SEQ_2_SEQ_LM"))


def test_an_adapter_is_guarded(tmp_path):
    plain = trained(tmp_path / "plain", model=adapted(), max_steps=10)
    guarded = trained(tmp_path / "guarded", StayFinite(), model=adapted(), max_steps=10)
    assert same(weights(plain), weights(guarded))
    spoilt = trained(tmp_path / "spoilt", StayFinite(), model=adapted(), bad=(51,), max_steps=10, **SEQUENTIAL)
    assert finite(spoilt)
    assert [event["step"] for event in events(tmp_path / "spoilt", "veto")] == [7]
    # The next training goes on from its checkpoint format, adapters alone.
    spoilt.save_model(str(tmp_path / "adapter"))
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()


class Spoilt(Trainer):
    """The loss of one step is not a number."""

    at = 4

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        found = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
        return found * math.nan if model.training and self.state.global_step + 1 == self.at else found


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_bnb_8bit"])
def test_a_base_in_8_bit_is_guarded(tmp_path, optim):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    from peft import LoraConfig, get_peft_model
    from transformers import BitsAndBytesConfig

    tiny_llama().save_pretrained(tmp_path / "base")
    try:
        base = LlamaForCausalLM.from_pretrained(
            tmp_path / "base", quantization_config=BitsAndBytesConfig(load_in_8bit=True), device_map="cpu"
        )
    except (ImportError, RuntimeError, ValueError) as error:
        pytest.skip(f"no 8-bit on this device: {error}")
    assert any(isinstance(module, bitsandbytes.nn.Linear8bitLt) for module in base.modules())
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    trainer = Spoilt(
        model, arguments(tmp_path, max_steps=8, optim=optim), train_dataset=Tokens(), callbacks=[StayFinite()]
    )
    trainer.train()
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters() if p.requires_grad)
    assert [event["step"] for event in events(tmp_path, "veto")] == [4]


def test_tensorboard_shows_what_was_refused(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    trained(tmp_path / "out", StayFinite(), bad=(51,), report_to=["tensorboard"], **SEQUENTIAL)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = {path.parent for path in (tmp_path).rglob("events.out.*")}
    board = EventAccumulator(str(folder))
    board.Reload()
    assert [each.value for each in board.Scalars("train/stayfinite/vetoes")][:4] == [0, 1, 1, 1]
    assert board.Scalars("train/stayfinite/found/bad-data-row")[0].value == 7


def test_the_progress_bar_stays_whole_and_the_lines_stand_beside_it(tmp_path, capfd):
    trained(tmp_path, StayFinite(), bad=(51,), disable_tqdm=False, **SEQUENTIAL)
    said = capfd.readouterr()
    assert "stayfinite: step 7 refused (loss-not-finite)" in said.err
    assert "stayfinite/vetoes" in said.out + said.err


def test_trl_fine_tuning_is_guarded_and_its_metrics_are_not_spoilt_by_the_autopsy(tmp_path):
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    torch.manual_seed(0)
    rows = [{"input_ids": torch.randint(3, 32, (8,)).tolist()} for _ in range(64)]

    class SpoiltSft(trl.SFTTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            found = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
            return found * math.nan if self.spoil and self.state.global_step + 1 == 4 else found

    def train(name, *callbacks, spoil=False):
        args = trl.SFTConfig(
            output_dir=str(tmp_path / name), use_cpu=True, max_steps=8, per_device_train_batch_size=4, logging_steps=1,
            report_to=[], save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, bf16=False,
            gradient_checkpointing=False,
        )  # fmt: skip
        trainer = SpoiltSft(
            model=tiny_llama(), args=args, train_dataset=Dataset.from_list(rows), callbacks=list(callbacks),
            processing_class=tokenizer(),
        )  # fmt: skip
        trainer.spoil = spoil
        trainer.train()
        return trainer

    plain, guarded = train("plain"), train("guarded", StayFinite())
    assert same(weights(plain), weights(guarded))
    spoilt = train("spoilt", StayFinite(), spoil=True)
    assert finite(spoilt)
    assert [event["step"] for event in events(tmp_path / "spoilt", "veto")] == [4]
    tokens = [logged["num_tokens"] for logged in spoilt.state.log_history if "num_tokens" in logged]
    assert tokens == [logged["num_tokens"] for logged in plain.state.log_history if "num_tokens" in logged]


def tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(32)}
    plain = Tokenizer(models.WordLevel(words, unk_token="w3"))
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="w0", bos_token="w1", eos_token="w2", unk_token="w3"
    )


def test_trl_preference_training_is_guarded(tmp_path):
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    torch.manual_seed(0)

    def words(count):
        return " ".join(f"w{i}" for i in torch.randint(3, 32, (count,)).tolist())

    rows = [{"prompt": words(4), "chosen": " " + words(3), "rejected": " " + words(3)} for _ in range(32)]

    class SpoiltDpo(trl.DPOTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            found = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
            return found * math.nan if self.state.global_step + 1 == 4 else found

    args = trl.DPOConfig(
        output_dir=str(tmp_path), use_cpu=True, max_steps=6, per_device_train_batch_size=4, logging_steps=1,
        report_to=[], save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, bf16=False,
        gradient_checkpointing=False,
    )  # fmt: skip
    trainer = SpoiltDpo(
        model=tiny_llama(), ref_model=tiny_llama(), args=args, train_dataset=Dataset.from_list(rows),
        callbacks=[StayFinite()], processing_class=tokenizer(),
    )  # fmt: skip
    trainer.train()
    assert finite(trainer)
    assert [event["step"] for event in events(tmp_path, "veto")] == [4]


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_the_ladder_leaves_bf16_where_nothing_else_helps(tmp_path):
    class Overflowing(type(tiny_trainer(tmp_path / "unused"))):
        """Finite in fp32 only."""

        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            seen = []
            handle = model.lm_head.register_forward_hook(
                lambda *_: seen.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)
            )
            found = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
            handle.remove()
            bad = self.state.global_step >= 6 and torch.bfloat16 in seen
            return found * math.nan if bad else found

    policy = Policy(max_vetoes_in_a_row=1, patience=1, max_cuts=0, snapshots=False, autopsy_seconds=0)
    trainer = trained(tmp_path / "out", StayFinite(policy), kind=Overflowing, bf16=True)
    (change,) = events(tmp_path / "out", "escalate")
    assert (change["from_precision"], change["to_precision"]) == ("bf16", "fp32")
    assert finite(trainer)
    assert trainer.state.log_history[-1]["stayfinite/vetoes"] == 2
    assert trainer.accelerator.mixed_precision == "bf16"


def test_a_training_step_with_the_old_signature_is_guarded_and_explained(tmp_path):
    class Older(Faulty):
        def training_step(self, model, inputs, *rest):
            assert len(rest) <= 1
            return super().training_step(model, inputs, *rest)

    trained(tmp_path, StayFinite(), kind=Older, bad=(51,), **SEQUENTIAL)
    found = json.loads((tmp_path / "stayfinite" / "incidents" / "0001" / "autopsy.json").read_text())
    assert found["cause"] == "bad-data-row"


def test_inputs_that_are_prepared_in_ways_of_their_own_are_not_prepared_again(tmp_path):
    class Generating(Faulty):
        """Makes its inputs by itself, as trainers that learn from what they generate do."""

        prepared = 0

        def _prepare_inputs(self, inputs):
            type(self).prepared += 1
            inputs = super()._prepare_inputs(inputs)
            return inputs | {"inputs_embeds": inputs["inputs_embeds"] * (math.nan if self.prepared == 7 else 1.0)}

    trainer = trained(tmp_path, StayFinite(), kind=Generating, max_steps=10)
    assert Generating.prepared == 10
    assert finite(trainer)
    found = json.loads((tmp_path / "stayfinite" / "incidents" / "0001" / "autopsy.json").read_text())
    assert found["cause"] == "bad-data-row"
    assert "_prepare_inputs" not in vars(trainer)


def test_a_loop_of_ones_own_that_steps_past_training_step_is_left_alone_and_that_is_said(tmp_path):
    class OwnLoop(Faulty):
        def _run_epoch(self, model, train_dataloader, **_):
            for inputs in list(train_dataloader)[:3]:
                self.accelerator.backward(self.compute_loss(model, inputs))
                self.accelerator.clip_grad_norm_(model.parameters(), 1.0)
                self.optimizer.step()
                model.zero_grad()
                self.state.global_step += 1
                self.callback_handler.on_step_end(self.args, self.state, self.control)
            self.control.should_training_stop = True

    trainer = tiny_trainer(tmp_path / "out", StayFinite(), kind=OwnLoop)
    with pytest.warns(NotGuarded, match="steps without training_step"):
        trainer.train()
    plain = trained(tmp_path / "plain", kind=OwnLoop)
    assert same(weights(plain), weights(trainer))
