"""Of every rule on the flow of gradients: a run that has the cause, and one that looks like it and has not."""

from rules.example import Example

NO_GRAPH = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn\n"
HEALTHY = """\
step 10 | loss 2.31 | grad_norm 1.4
step 20 | loss 1.87 | grad_norm 1.2
step 30 | loss 1.52 | grad_norm 1.1
step 40 | loss 1.38 | grad_norm 0.9
"""
STANDING = "".join(f"step {step} | loss 2.3026 | grad_norm 0.0\n" for step in range(10, 260, 10))
FADED = "".join(f"step {step} | loss 2.3026 | grad_norm 3.1e-09\n" for step in range(10, 260, 10))

EXAMPLES: dict[str, tuple[Example, Example]] = {
    "detached-loss": (
        Example(log=NO_GRAPH, config="loss = torch.tensor(losses).mean()\nloss.backward()\n"),
        Example(
            log=f"UserWarning: None of the inputs have requires_grad=True. Gradients will be None\n{NO_GRAPH}",
            config="gradient_checkpointing: true\nlora_r: 8\n",
        ),
    ),
    "params-frozen": (
        Example(
            log="trainable params: 0 || all params: 1,100,048,384 || trainable%: 0.0000\n",
            config="model = PeftModel.from_pretrained(base, './adapter')\n",
        ),
        Example(log=f"trainable params: 4,194,304 || all params: 6,742,609,920 || trainable%: 0.0622\n{HEALTHY}"),
    ),
    "gradient-checkpointing-no-input-grad": (
        Example(log=NO_GRAPH, config="gradient_checkpointing: true\nlora_r: 16\nlora_alpha: 32\nload_in_4bit: true\n"),
        Example(log=NO_GRAPH, config="gradient_checkpointing: false\nloss = loss.detach()\nloss.backward()\n"),
    ),
    "unused-parameters": (
        Example(
            log="RuntimeError: One of the differentiated Tensors appears to not have been used in the graph. "
            "Set allow_unused=True if this is the desired behavior.\n"
        ),
        Example(log=f"no decay, with 0 unused tensors\n{HEALTHY}"),
    ),
    "unregistered-module": (
        Example(observed={"modules.unregistered": ["layers.0.weight", "layers.1.weight"]}),
        Example(log="ValueError: optimizer got an empty parameter list\n", config="lora_r: 8\nfreeze: all\n"),
    ),
    "inplace-modification": (
        Example(
            log="RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
            "operation: [torch.cuda.FloatTensor [64, 128]], which is output 0 of ReluBackward0, is at version 2; "
            "expected version 1 instead.\n"
        ),
        Example(log=HEALTHY, config="activation: ReLU(inplace=True)\n"),
    ),
    "vanishing-gradient": (
        Example(log=FADED, config="activation: sigmoid in all hidden layers\nprecision: fp32\n"),
        Example(log="".join(f"step {n} | loss {4e-5 / n:.2e} | grad_norm 3.1e-07\n" for n in range(1, 30))),
    ),
    "exploding-gradient": (
        Example(observed={"gradient.depth_slope": 1.2}),
        Example(log=HEALTHY.replace("grad_norm 1.2", "grad_norm 41.0")),
    ),
    "dead-units": (
        Example(observed={"activations.dead_share": 0.93}),
        Example(log=HEALTHY, observed={"activations.dead_share": 0.02}),
    ),
    "wrong-mode": (
        Example(
            log="ValueError: Expected more than 1 value per channel when training, got size torch.Size([1, 256])\n"
        ),
        Example(log=HEALTHY, config="backbone.eval()\nmodel.train()\n"),
    ),
    "zero-gradient": (
        Example(log=STANDING),
        Example(log=HEALTHY.replace("grad_norm 0.9", "grad_norm 0.0")),
    ),
    "input-ignored": (
        Example(observed={"loss.ignores_input": True}),
        Example(observed={"loss.ignores_input": False}),
    ),
    "samples-leak": (
        Example(observed={"samples.leak": 0.31}),
        Example(observed={"samples.leak": 0.0004}),
    ),
    "causal-leak": (
        Example(observed={"tokens.leak": 0.2}),
        Example(observed={"tokens.leak": 2e-6}),
    ),
    "weights-untied": (
        Example(observed={"model.weights_untied": "emb.weight and head.weight began alike"}),
        Example(observed={"model.weights_untied": ""}),
    ),
}
