"""What a loss does in a healthy training of some kinds, so that nobody who says it has a sick run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from stayfinite.core.lazy_regex import lazy_regex

UsualKind = Literal[
    "still", "loss rises", "negative loss", "explodes", "low score", "score falls", "slow", "not as expected",
    "zero loss", "rate still", "rate off", "negative kl", "not finite",
]  # fmt: skip

_USUAL: tuple[tuple[re.Pattern[str], frozenset[UsualKind]], ...] = (
    # A loss over random noise levels is flat and noisy after the first thousand steps, while samples improve.
    (
        lazy_regex(
            r"diffusion|\bdd[ip]m\b|\bdit(?:[-_ ]|\b)|\bflux(?:\.1|[-_ ](?:dev|lora|kontext|schnell))\b|\bsdxl\b|"
            r"flow[- ]matching|text[-_ ]to[-_ ]image|\bldm\b|score[- ](?:based|matching)|\bdreambooth\b",
            re.IGNORECASE,
        ),
        frozenset({"still", "loss rises"}),
    ),
    # The loss of a policy or of values may rise while the policy improves, and a policy's has no sign.
    (
        lazy_regex(
            r"reinforcement learning|\b(?:d{1,3}qn|ddpg|td3|sac|ppo|a[23]c|trpo|(?:ppo|dqn|sac|a2c)\w+|"
            r"dreamer\w*|muzero|alphazero|impala|"
            r"(?:ma-?)?poca|ma?ppo|reinforce)\b|\b(?:actor|critic|policy|q)[-_/ ]?loss|--?env(?:_name)?\b",
            re.IGNORECASE,
        ),
        frozenset({"loss rises", "negative loss"}),
    ),
    # Densities have no upper bound; a correlation, a ratio in decibels and a critic's score have a sign.
    (
        lazy_regex(
            r"si-?s[nd]r|neg(?:ative)?[-_ ]?s[nd]r|(?<![a-z])nll|log[-_ ]?(?:likelihood|prob)|\blogp\b|\belbo\b|"
            r"\bcosine|"
            r"\w*glow\b|normali[sz]ing flow|real-?nvp|mixture density|\bmdn\b|gaussian|uniformity|\bbyol\b|\bsimsiam\b|"
            r"\bnnu-?net|info-?max|wavenet|logistic mixture|mixture of logistics|mutual information|pearson|"
            r"wasserstein|\bwgan",
            re.IGNORECASE,
        ),
        frozenset({"negative loss"}),
    ),
    # The reward of an answer is relative to the reference: both may be negative while their margin grows.
    (
        lazy_regex(r"\b(?:dpo|kto|orpo|simpo)\b|^(?=.*\bchosen\b).*\brejected\b", re.IGNORECASE),
        frozenset({"negative loss"}),
    ),
    # A latent code that learns to say more moves away from its prior.
    (lazy_regex(r"\bkld?[ _]loss\b|\bkl term|\bkld\b", re.IGNORECASE), frozenset({"loss rises"})),
    # A queue of negatives that fills up makes the task harder: the loss rises to ln of its length first.
    (lazy_regex(r"\bmoco(?:[-_ ]?v?\d)?\b", re.IGNORECASE), frozenset({"loss rises"})),
    # A teacher that moves along keeps the loss where it is.
    (lazy_regex(r"\bdino(?:v[23])?\b|\bibot\b|\bbyol\b|"
        r"self-distillation", re.IGNORECASE), frozenset({"still", "loss rises"})),
    # gensim counts its loss up over the whole run.
    (lazy_regex(r"get_latest_training_loss|\bgensim\b", re.IGNORECASE), frozenset({"loss rises"})),
    # With a margin the loss begins twice as high, and no answer is right for the first epochs.
    (
        lazy_regex(
            r"\barc[-_ ]?face|\bcos[-_ ]?face|\bam[-_ ]?softmax|additive (?:angular )?margin|"
            r"\bsphereface", re.IGNORECASE
        ),
        frozenset({"still", "low score"}),
    ),
    # Losses summed over all boxes begin in the hundreds or thousands.
    (lazy_regex(r"\bdarknet\b", re.IGNORECASE), frozenset({"explodes"})),
    # The mean over the objects of a size that no image of the batch has.
    (lazy_regex(r"^(?=.*\bcount: 0\b).*\bnan\b", re.IGNORECASE), frozenset({"not finite"})),
    # What went away by itself.
    (
        lazy_regex(
            r"\b(?:normal|fine|as before) again\b|\b(?:recovers?|recovered|(?:returned|"
            r"went back) to normal)\b(?<!never recovers)"
            r"(?<!not recover)(?<!never recovered)",
            re.IGNORECASE,
        ),
        frozenset({"loss rises", "explodes", "score falls"}),
    ),
    # Who asks whether a loss may be negative has one that may.
    (
        lazy_regex(
            r"(?<!why )\b(?:can|could|may|is|are)\b[^.!?\n]{0,30}\bnegative\b[^.!\n]{0,30}\?|"
            r"\bnegative\b.*\b(?:ok|okay|normal|fine|expected|a problem|supposed to)\b[^.!\n]*\?",
            re.IGNORECASE,
        ),
        frozenset({"negative loss"}),
    ),
    # Who asks whether it is normal mostly has a run that is well: 36 of 43 in the known sets and the thirty-third.
    (
        lazy_regex(
            r"(?:^|[.!?,;:(]\s?|\b(?:and|or|but|so)\s)(?:is|are|was)\s(?!there)[^.?!\n]{0,60}"
            r"\b(?:normal|expected|usual|common|okay|ok|fine|intended|supposed to|reasonable|acceptable|alright)\b"
            r"[^.!\n]{0,80}\?|\b(?:normal|expected|usual|reasonable)\b[^.!\n]{0,50}\?|\bis this how it should\b|"
            r"\bshould it not be\b|\bshould I (?:worry|expect)\b|"
            r"\u6b63\u5e38(?:\u5417|\u4e48|\u7684\u5417|\u55ce|\u73b0\u8c61\u5417)|\u662f\u5426\u6b63\u5e38",
            re.IGNORECASE,
        ),
        frozenset({
            "still", "loss rises", "negative loss", "explodes", "low score", "score falls", "slow", "not as expected",
            "zero loss", "rate still", "rate off", "negative kl",
        }),
    ),
)  # fmt: skip
_PLAYERS = (
    lazy_regex(
        r"\bgenerators?\b|\bg[-_ ]?loss\b|\berrg\b|loss_(?:adv_)?g(?:en)?\b|\badv_gen\b|\u751f\u6210\u5668",
        re.IGNORECASE,
    ),
    lazy_regex(
        r"\bdiscriminators?\b|\bd[-_ ]?loss\b|\berrd\b|loss_(?:adv_)?d(?:is)?\b|\badv_dis\b|\u9274\u522b\u5668|"
        r"\u5224\u522b\u5668",
        re.IGNORECASE,
    ),
)
"""Neither of their losses is meant to fall."""


def usual_kinds(texts: Iterable[str], *, arrived: bool) -> set[UsualKind]:
    """What is no complaint beside these texts.

    Arguments:
        arrived: they say that the results are good.
    """
    lines = list(texts)
    found: set[UsualKind] = {"still", "loss rises"} if arrived else set()
    for words, kinds in _USUAL:
        if not kinds <= found and any(map(words.search, lines)):
            found |= kinds
    if all(any(map(each.search, lines)) for each in _PLAYERS):
        found |= {"still", "loss rises"}
    return found
