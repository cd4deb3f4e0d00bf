"""Trainings with which nothing is wrong, small: what people really train, at its usual initialization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass
class Setup:
    model: nn.Module
    batch: Any
    forward: Callable[[Any], Any] | None = None
    optimizer: Any = None

    def __post_init__(self) -> None:
        if self.optimizer is None:
            trainable = [p for p in self.model.parameters() if p.requires_grad]
            self.optimizer = torch.optim.AdamW(trainable, lr=1e-4, weight_decay=0.01)


def ids(rows: int, length: int, vocabulary: int, least: int = 3) -> Tensor:
    return torch.randint(least, vocabulary, (rows, length))


def t5() -> Setup:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=128, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)
    mask = torch.ones(4, 16, dtype=torch.long)
    mask[2, 10:] = 0
    labels = ids(4, 12, 128)
    labels[1, 8:] = -100
    return Setup(
        T5ForConditionalGeneration(config), {"input_ids": ids(4, 16, 128), "attention_mask": mask, "labels": labels}
    )


def byt5() -> Setup:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=384, d_model=32, d_kv=8, d_ff=48, num_layers=3, num_decoder_layers=1, num_heads=4,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0,
    )  # fmt: skip
    return Setup(T5ForConditionalGeneration(config), {"input_ids": ids(4, 24, 256), "labels": ids(4, 16, 256)})


def bert() -> Setup:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32,
    )  # fmt: skip
    tokens = ids(4, 16, 128)
    chosen = torch.rand(tokens.shape) < 0.3
    chosen[:, 0] = True
    labels = torch.where(chosen, tokens, -100)
    return Setup(BertForMaskedLM(config), {"input_ids": torch.where(chosen, 2, tokens), "labels": labels})


def tiny_llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def llama_lora() -> Setup:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny_llama(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    tokens = ids(4, 16, 128)
    return Setup(model, {"input_ids": tokens, "labels": tokens.clone()})


def llava() -> Setup:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    vision = CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, image_size=16, patch_size=8
    )
    text = LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64,
    )  # fmt: skip
    model = LlavaForConditionalGeneration(LlavaConfig(vision_config=vision, text_config=text, image_token_id=120))
    tokens = ids(2, 14, 110)
    tokens[:, 2:6] = 120
    labels = tokens.clone()
    labels[:, :6] = -100
    batch = {"input_ids": tokens, "pixel_values": torch.randn(2, 3, 16, 16), "labels": labels}
    return Setup(model, batch | {"attention_mask": torch.ones_like(tokens)})


def vit() -> Setup:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=4,
        num_labels=10,
    )  # fmt: skip
    return Setup(
        ViTForImageClassification(config), {"pixel_values": torch.randn(4, 3, 16, 16), "labels": torch.arange(4)}
    )


class Lstm(nn.Module):
    def __init__(self, *, batch_first: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 32, num_layers=2, dropout=0.2, batch_first=batch_first)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(tokens))[0])


def lstm() -> Setup:
    model = Lstm()
    tokens = ids(4, 21, 50, 0)

    def forward(batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0]).transpose(1, 2), batch[1])

    return Setup(model, (tokens[:, :-1], tokens[:, 1:]), forward, torch.optim.Adam(model.parameters(), lr=1e-3))


def lstm_time_first() -> Setup:
    model = Lstm(batch_first=False)
    tokens = ids(21, 4, 50, 0)
    return Setup(
        model,
        (tokens[:-1], tokens[1:]),
        lambda batch: F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten()),
        torch.optim.SGD(model.parameters(), lr=1.0),
    )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self.block(1, 8), self.block(8, 16)])
        self.middle = self.block(16, 32)
        self.rise = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.up = nn.ModuleList([self.block(32, 16), self.block(16, 8)])
        self.head = nn.Conv2d(8, 1, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for rise, block in zip(self.rise, self.up, strict=True):
            x = block(torch.cat([rise(x), kept.pop()], 1))
        return self.head(x)


def unet() -> Setup:
    model = UNet()
    batch = {"image": torch.rand(4, 1, 16, 16), "mask": (torch.rand(4, 1, 16, 16) > 0.5).float()}
    return Setup(
        model,
        batch,
        lambda given: F.binary_cross_entropy_with_logits(model(given["image"]), given["mask"]),
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
    )


class Ctc(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(20, 32, 3, padding=1)
        self.gru = nn.GRU(32, 24, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 12)

    def forward(self, features: Tensor) -> Tensor:
        x = torch.relu(self.conv(features.transpose(1, 2))).transpose(1, 2)
        return self.head(self.gru(x)[0]).log_softmax(-1)


def ctc() -> Setup:
    model = Ctc()
    batch = {
        "features": torch.randn(4, 40, 20),
        "labels": torch.randint(1, 12, (4, 6)),
        "feature_lengths": torch.tensor([40, 36, 40, 30]),
        "label_lengths": torch.tensor([6, 5, 4, 6]),
    }

    def forward(given: dict[str, Tensor]) -> Tensor:
        scores = model(given["features"]).transpose(0, 1)
        return F.ctc_loss(scores, given["labels"], given["feature_lengths"], given["label_lengths"])

    return Setup(model, batch, forward)


class JointBlock(nn.Module):
    """One block of a multi-modal diffusion transformer: two streams, one attention, gates that start at zero."""

    def __init__(self, size: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(size, elementwise_affine=False) for _ in range(2)])
        self.modulation = nn.ModuleList([nn.Linear(size, 6 * size) for _ in range(2)])
        self.qkv = nn.ModuleList([nn.Linear(size, 3 * size) for _ in range(2)])
        self.out = nn.ModuleList([nn.Linear(size, size) for _ in range(2)])
        self.feed = nn.ModuleList(
            [nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size)) for _ in range(2)]
        )
        for layer in self.modulation:
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, streams: list[Tensor], condition: Tensor) -> list[Tensor]:
        changes = [layer(F.silu(condition)).unsqueeze(1).chunk(6, -1) for layer in self.modulation]
        parts = []
        for i, x in enumerate(streams):
            shift, scale, *_ = changes[i]
            qkv = self.qkv[i](self.norms[i](x) * (1 + scale) + shift)
            parts.append([t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in qkv.chunk(3, -1)])
        q, k, v = (torch.cat([part[j] for part in parts], 2) for j in range(3))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        mixed_streams = mixed.split([x.shape[1] for x in streams], 1)
        results = []
        for i, x in enumerate(streams):
            _, _, gate, shift, scale, feed_gate = changes[i]
            x = x + gate * self.out[i](mixed_streams[i])
            results.append(x + feed_gate * self.feed[i](self.norms[i](x) * (1 + scale) + shift))
        return results


class Mmdit(nn.Module):
    def __init__(self, size: int = 32, channels: int = 4) -> None:
        super().__init__()
        self.patch = nn.Linear(channels, size)
        self.position = nn.Parameter(torch.randn(1, 16, size) * 0.02)
        self.text = nn.Linear(24, size)
        self.time = nn.Sequential(nn.Linear(1, size), nn.SiLU(), nn.Linear(size, size))
        self.blocks = nn.ModuleList([JointBlock(size) for _ in range(2)])
        self.final_modulation = nn.Linear(size, 2 * size)
        self.final = nn.Linear(size, channels)
        for layer in (self.final_modulation, self.final):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, latents: Tensor, text: Tensor, time: Tensor) -> Tensor:
        condition = self.time(time[:, None]) + self.text(text).mean(1)
        streams = [self.patch(latents) + self.position, self.text(text)]
        for block in self.blocks:
            streams = block(streams, condition)
        shift, scale = self.final_modulation(F.silu(condition)).unsqueeze(1).chunk(2, -1)
        return self.final(F.layer_norm(streams[0], streams[0].shape[-1:]) * (1 + scale) + shift)


def mmdit() -> Setup:
    model = Mmdit()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        noise, time = torch.randn_like(batch["latents"]), torch.rand(len(batch["latents"]))
        noisy = torch.lerp(batch["latents"], noise, time[:, None, None])
        return F.mse_loss(model(noisy, batch["text"], time), noise - batch["latents"])

    return Setup(model, {"latents": torch.randn(4, 16, 4), "text": torch.randn(4, 6, 24)}, forward)


def eight_bit_lora() -> Setup:
    import bitsandbytes
    from peft import LoraConfig, get_peft_model

    base = tiny_llama()
    for block in base.model.layers:
        for parent, name in [(block.self_attn, n) for n in ("q_proj", "k_proj", "v_proj", "o_proj")]:
            old = getattr(parent, name)
            new = bitsandbytes.nn.Linear8bitLt(old.in_features, old.out_features, bias=False, has_fp16_weights=False)
            new.weight = bitsandbytes.nn.Int8Params(old.weight.data, requires_grad=False, has_fp16_weights=False)
            setattr(parent, name, new.to("cpu"))
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    tokens = ids(4, 16, 128)
    return Setup(model, {"input_ids": tokens, "labels": tokens.clone()})


def convnet() -> Setup:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(32, 10),
    )  # fmt: skip
    return Setup(
        model,
        [torch.rand(8, 3, 16, 16), torch.randint(0, 10, (8,))],
        lambda batch: F.cross_entropy(model(batch[0]), batch[1]),
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True),
    )


def plain_convnet() -> Setup:
    """No norm anywhere, torch's own init."""
    layers: list[nn.Module] = []
    for inputs, outputs in [(3, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64)]:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return Setup(
        model,
        (torch.randn(8, 3, 12, 12), torch.randint(0, 10, (8,))),
        lambda batch: F.cross_entropy(model(batch[0]), batch[1]),
    )


def regression() -> Setup:
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    batch = {"x": torch.randn(32, 12), "y": torch.randn(32)}
    return Setup(model, batch, lambda given: F.mse_loss(model(given["x"]).squeeze(-1), given["y"]))


def deep_tanh() -> Setup:
    layers: list[nn.Module] = []
    for _ in range(8):
        linear = nn.Linear(48, 48)
        nn.init.xavier_uniform_(linear.weight, gain=5 / 3)
        layers += [linear, nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(48, 5))
    return Setup(
        model,
        (torch.randn(16, 48), torch.randint(0, 5, (16,))),
        lambda batch: F.cross_entropy(model(batch[0]), batch[1]),
    )


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(x).chunk(2, -1)
        return self.decode(mean + torch.randn_like(mean) * (log_variance / 2).exp()), mean, log_variance


def vae() -> Setup:
    model = Vae()

    def forward(batch: list[Tensor]) -> Tensor:
        made, mean, log_variance = model(batch[0])
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        return F.binary_cross_entropy(made, batch[0], reduction="sum") / len(batch[0]) + divergence

    return Setup(model, [torch.rand(8, 64)], forward)


def gan_generator() -> Setup:
    model = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 16), nn.Tanh())
    judge = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(noise: Tensor) -> Tensor:
        scores = judge(model(noise))
        return F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))

    return Setup(model, torch.randn(8, 8), forward, torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999)))


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(12, 16)
        self.router = nn.Linear(16, 8)
        self.experts = nn.ModuleList([nn.Linear(16, 16) for _ in range(8)])
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.enter(x))
        weight, chosen = self.router(x).softmax(-1).max(-1)
        mixed = torch.zeros_like(x)
        for number in chosen.unique().tolist():
            rows = chosen == number
            mixed[rows] = weight[rows, None] * self.experts[number](x[rows])
        return self.head(x + mixed)


def mixture() -> Setup:
    model = Experts()
    return Setup(
        model,
        (torch.randn(6, 12), torch.randint(0, 4, (6,))),
        lambda batch: F.cross_entropy(model(batch[0]), batch[1]),
    )


class Gpt(nn.Module):
    """As people write it: tied weights, learned positions, a mask of its own."""

    def __init__(self, *, causal: bool = True) -> None:
        super().__init__()
        self.token = nn.Embedding(64, 32)
        self.position = nn.Embedding(32, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 64, bias=False)
        self.causal = causal
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.token(tokens) + self.position(torch.arange(length))
        mask = nn.Transformer.generate_square_subsequent_mask(length) if self.causal else None
        return self.head(self.blocks(x, mask=mask, is_causal=self.causal))


def gpt(*, causal: bool = True) -> Setup:
    model = Gpt(causal=causal)
    tokens = ids(4, 17, 64, 0)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return Setup(
        model,
        (tokens[:, :-1], tokens[:, 1:]),
        lambda batch: F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten()),
        torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95)),
    )


def frozen_backbone() -> Setup:
    backbone = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32))
    backbone.requires_grad_(False).eval()
    model = nn.Sequential()
    model.add_module("backbone", backbone)
    model.add_module("head", nn.Linear(32, 3))
    return Setup(
        model,
        (torch.randn(8, 16), torch.randint(0, 3, (8,))),
        lambda batch: F.cross_entropy(model(batch[0]), batch[1]),
    )


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(16, 8), nn.Linear(12, 8)
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        a, b = F.normalize(self.left(left), dim=-1), F.normalize(self.right(right), dim=-1)
        return self.scale.exp() * a @ b.T


def contrastive() -> Setup:
    model = Pair()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        scores = model(batch["left"], batch["right"])
        own = torch.arange(len(scores))
        return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2

    return Setup(model, {"left": torch.randn(8, 16), "right": torch.randn(8, 12)}, forward)


def bert_classifier() -> Setup:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32,
    )  # fmt: skip
    model = nn.ModuleDict({"bert": BertModel(config), "head": nn.Linear(32, 2)})

    def forward(batch: dict[str, Tensor]) -> Tensor:
        hidden = model["bert"](batch["input_ids"]).last_hidden_state.mean(1)
        return F.cross_entropy(model["head"](hidden), batch["labels"])

    return Setup(model, {"input_ids": ids(4, 16, 128), "labels": torch.tensor([0, 1, 1, 0])}, forward)


def warming_up() -> Setup:
    setup = regression()
    torch.optim.lr_scheduler.LambdaLR(setup.optimizer, lambda step: min(1.0, step / 100))
    return setup


def bf16_autocast() -> Setup:
    setup = regression()
    inner = setup.forward

    def forward(batch: Any) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return inner(batch)  # type: ignore[misc]

    setup.forward = forward
    return setup


NAMED: dict[str, Callable[[], Setup]] = {
    "T5": t5, "ByT5": byt5, "BERT": bert, "LLaMA+LoRA": llama_lora, "LLaVA": llava, "ViT": vit, "LSTM": lstm,
    "UNet": unet, "CTC": ctc, "MMDiT": mmdit, "8-bit+LoRA": eight_bit_lora,
}  # fmt: skip
"""With the one that DDP wraps, the twelve that are promised."""

OTHERS: dict[str, Callable[[], Setup]] = {
    each.__name__: each
    for each in (
        lstm_time_first, convnet, plain_convnet, regression, deep_tanh, vae, gan_generator, mixture, gpt,
        frozen_backbone, contrastive, bert_classifier, warming_up, bf16_autocast,
    )
}  # fmt: skip
