"""Sentences that say something of a loss, a gradient, a rate, weights or a score."""

import pytest

from stayfinite.rules.signs.reported_symptoms import reported_symptoms


def kinds(*lines):
    return {each.kind for each in reported_symptoms([("log", line) for line in lines])}


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("the loss goes up and down around 3 for a while and then all of a sudden becomes 0", "zero loss"),
        ("the grad_norm = 0 at each of the steps", "zero gradient"),
        ("encoder.weight.grad: None", "zero gradient"),
        ("after the warm-up the learning rate is not decaying", "rate still"),
        ("The learning rate decays to 0 after one epoch", "rate 0"),
        ("the parameters of the head are not being updated", "weights still"),
        ("validation accuracy is fixed at 0.33", "still"),
        ("the network does not seem to train", "still"),
        ("no improvement in the loss over 20 epochs", "still"),
        ("the cost hovers around 4.6", "still"),
        ("the loss is in the billions", "explodes"),
        ("train loss keeps going up", "loss rises"),
        ("the BLEU score suddenly plummets", "score falls"),
        ("my loss is negative", "negative loss"),
        ("there is a discontinuity in the learning rate at epoch 45", "rate off"),
        ("the logged lr is the initial one rather than the updated one", "rate off"),
        ("学习率出现断崖式下降", "rate off"),
        ("模型的weight并未更新", "weights still"),
        ("when I was training it, the log showed nan in the loss", "not finite"),
        ("the recall goes from 71 % to 9 %", "low score"),
        ("dev accuracy is at chance", "still"),
        ("the f1 does not exceed 0.1", "still"),
        ("the psnr goes down with every epoch", "score falls"),
        ("it keeps printing the same bracket", "bad answers"),
        ("the loss won't go below 4.6", "still"),
        ("loss begins at 9 and stays there", "still"),
        ("all epochs have exactly the same loss", "still"),
        ("the decoder does not learn", "still"),
        ("the cost curve is a horizontal line", "still"),
        ("the logits grow without bound", "explodes"),
        ("the perplexity is around 4e10", "explodes"),
        ("GPU memory usage keeps increasing every epoch", "memory grows"),
        ("training gets stuck before the second step on 4 GPUs", "hangs"),
        ("the features have collapsed", "same answers"),
        ("the detector only outputs background", "same answers"),
        ("the attention weights are all equal", "same answers"),
        ("99 % vs 9 % in training and test", "low score"),
        ("the R2 is -12.5", "low score"),
        ("the learning rate jumps to its maximum after the first epoch", "rate off"),
        ("after resuming, the lr is reset to the initial one", "rate off"),
        ("it updates once and then it overflows endlessly", "overflows"),
        ("gradient overflow at every step", "overflows"),
        ("loss一直不下降", "still"),
        ("训练几步之后损失变成nan", "not finite"),
        ("验证集准确率一直为0", "still"),
        ("loss突然变成0", "zero loss"),
        ("梯度爆炸了", "explodes"),
        ("objective/kl becomes negative after some updates", "negative kl"),
        ("results are much worse than in the paper", "not as expected"),
        ("from scratch: NaN after 74 iterations", "not finite"),
        ("NaNs for every batch", "not finite"),
        ("accuracy refuses to budge from 12 %", "still"),
        ("the reward has flatlined at -200", "still"),
        ("weights remain identical after optimizer.step()", "weights still"),
        ("it keeps generating until the limit", "bad answers"),
        ("the model is not learning at all", "still"),
        ("The network could not learn anything", "still"),
        ("dev accuracy is lower than random chance", "still"),
        ("CER does not go below 0.9", "still"),
        ("AP and AR are all -1.000", "still"),
        ("the loss goes crazy after the warmup", "explodes"),
        ("Why is my loss negative?", "negative loss"),
        ("Why does the loss stay constant?", "still"),
        ("training is unstable and collapses after 20k steps", "same answers"),
        ("it returns an empty string for each prompt", "bad answers"),
        ("the same token over and over", "bad answers"),
        ("the loss scale keeps decreasing", "overflows"),
        ("on 2 GPUs the result is worse than with one", "not as expected"),
        ("In eval mode the accuracy is terrible", "not as expected"),
        ("my IoU is larger than 1", "not as expected"),
        ("the learning-rate decreases too fast", "rate off"),
        ("may I ask why my loss is always 0?", "zero loss"),
        ("I get the iou score as negative", "negative loss"),
        ("学习率为什么不变呢", "rate still"),
        ("MNIST not learning", "still"),
        ("it does't go past 30% accuracy", "still"),
        ("extraordinarily high losses", "explodes"),
        ("I only get 34 mIoU and the paper reports 44", "not as expected"),
    ],
)
def test_a_state_belongs_to_its_subject(sentence, kind):
    assert kind in kinds(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "the loss is above 64.0 when the iteration is 0",
        "Current loss scale already at minimum - cannot decrease scale anymore",
        "learning rate = 0.0100, previous best = 0.0000",
        'accelerate launch train.py --learning_rate=1e-4 --lr_scheduler="constant" --lr_warmup_steps=0',
        "callbacks added to the loss: none",
        "BERT parameters are not frozen",
        "Will train until the validation metric hasn't improved in 50 rounds",
        "encoder trained on MOSE, no change to the code",
        "The total training steps aren't reduced by those that were done",
        "the loss drops and the accuracy increases",
        "from torch.utils.data import DataLoader",
        "the loss decreases to 0.03",
        "Do not update model",
        "it does not change the API",
        "the results are not changed by this refactoring",
        "grad_norm is 0.3 on average, no spikes",
        "the loss does not explode",
        "when the loss is nan the step is skipped",
        "the learning rate drops by ten at epoch 30",
        "validation loss increases a little after epoch 9",
        "the test loss goes up while the accuracy still improves",
        "the learning rate goes to 0 at the end",
        "the generator's loss goes up and down",
        "memory grows with the batch size",
        "the memory of the replay buffer is increasing",
        "outputs are equal to those of the reference",
        "模型训练正常 loss一直下降",
        "损失没有出现nan",
        "the learning rate is increased linearly during warmup",
        "the learning rate increases over the first 500 steps",
        "reset the learning rate before fine-tuning",
        "overflow handling is on for every dataset",
        "one overflow at the start, then the scale fits",
        "the accuracy is slightly lower than reported in the paper",
        "metrics are the same for every rank",
        "weights are not updated for the teacher",
        "the model stays frozen",
        "the loss spikes at the start of every epoch but recovers quickly",
        "it only outputs the final checkpoint",
        "the output directory is empty",
        "is the loss constant?",
        "batch size larger than 1 is supported",
        "the accuracy of the baseline is lower than ours",
        "throughput is much lower than with bf16",
        "returns an empty list if no box is left",
        "WER is 4.3 on test-clean",
        "root - INFO - => The MIoU of val does't improve.",
        "the learning rate decays until the end of training",
        "it always gives different accuracies",
        "the initial loss of 41 is very high, and it drops to 2.9 in an hour",
        "we predict all masks of an image at once",
    ],
)
def test_what_is_said_of_something_else_is_no_trouble(sentence):
    assert kinds(sentence) == set()


def test_a_remark_without_subject_is_about_the_line_above():
    assert kinds("Epoch 1 loss 2.98", "(stays at 2.98)") == {"still"}
    assert kinds("other settings: unchanged") == set()


def test_standing_still_where_it_was_meant_to_arrive_is_no_trouble():
    assert kinds("after 140k steps the loss is stuck around 0.08") == set()
    assert kinds("after 1k steps the loss is stuck around 6.9") == {"still"}
    assert kinds("accuracy: 0.93", "it stays the same for 20 epochs") == set()
    assert kinds("generator loss 8.6, discriminator loss 4.5, neither does decrease") == set()


@pytest.mark.parametrize(
    "lines",
    [
        ("a DDIM on my own pictures", "the loss does not decrease after the first epochs"),
        ("fine-tuning with flow matching", "the loss is stuck at 0.4"),
        ("CartPole with a double DQN", "the loss keeps increasing"),
        ("the loss is stuck around 0.9, but the results keep improving",),
        ("the reward improves, and the loss rises",),
        ("SingleSrcNegSDR", "the loss is negative after 3 epochs"),
        ("train_text_to_image.py", "the train loss does not decrease"),
        ("ArcFace", "the accuracy is always 0 in the first epochs"),
        ("darknet", "the loss is insanely high"),
        ("MoCo v2", "the loss goes up in the first epoch"),
    ],
)
def test_what_a_loss_usually_does_is_no_complaint(lines):
    assert kinds(*lines) == set()


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (("a DDPM on 64 pixels", "the loss becomes nan"), "not finite"),
        (("a DDPM on 64 pixels", "the loss does not decrease", "every sample looks like pure noise"), "still"),
        (("a double DQN", "the loss explodes"), "explodes"),
        (("a double DQN", "the reward does not increase"), "still"),
        (("a classifier", "the loss keeps increasing"), "loss rises"),
        (("the initial loss is very high",), "explodes"),
        (("it classifies every tumor as background",), "same answers"),
        (("training accuracy improves", "the test accuracy stays at 11 %"), "still"),
    ],
)
def test_what_no_healthy_one_does_stays_a_complaint(lines, kind):
    assert kind in kinds(*lines)
