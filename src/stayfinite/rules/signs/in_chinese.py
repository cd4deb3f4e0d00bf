"""Complaints in Chinese, word by word in English: `loss 一直不下降` becomes `loss always does not decrease`.

Chinese has no spaces, so no pattern with word boundaries meets a Latin word inside it. Words are replaced, longest
first, and everything else is set apart.
"""

from __future__ import annotations

import re
from functools import cache

from stayfinite.core.lazy_regex import lazy_regex

_HAN = lazy_regex(r"[\u4e00-\u9fff]")
_WORDS = {
    "损失函数": "loss", "损失值": "loss", "损失": "loss", "误差": "error", "准确率": "accuracy", "精确率": "precision",
    "正确率": "accuracy", "召回率": "recall", "精度": "accuracy", "指标": "metrics", "奖励": "reward",
    "梯度": "gradient", "学习率": "learning rate", "权重": "weights", "参数": "parameters", "模型": "model",
    "网络": "network", "输出": "outputs", "预测": "predictions", "结果": "results", "训练": "training",
    "验证集": "validation", "测试集": "test", "显存不足": "out of memory", "显存溢出": "out of memory",
    "爆显存": "out of memory", "内存不足": "out of memory", "显存": "memory",
    "没有下降": "does not decrease", "不下降": "does not decrease", "不降": "does not decrease",
    "降不下去": "does not decrease", "下不去": "does not decrease", "不收敛": "does not converge",
    "无法收敛": "does not converge", "没有收敛": "does not converge", "难以收敛": "does not converge",
    "为什么": "why", "为何": "why",
    "没有变化": "does not change", "没变化": "does not change", "不变": "does not change", "不动": "does not change",
    "并未更新": "is not updated", "未更新": "is not updated", "不更新": "is not updated", "没有更新": "is not updated",
    "不上升": "does not increase", "卡在": "stuck at",
    "停留在": "stays at", "保持在": "stays at", "维持在": "stays at",
    "一直是": "is always", "一直为": "is always", "始终为": "is always", "总是会": "always", "总是": "always",
    "一直": "always", "始终": "always", "全部": "all", "全是": "are all", "都是": "are all", "全为": "are all",
    "都为": "are all", "变成了": "becomes", "变成": "becomes", "变为": "becomes", "会变": "becomes", "出现了": "gets",
    "出现": "gets", "等于": "is", "为": "is", "是": "is",
    "梯度爆炸": "gradient explodes", "爆炸": "explodes", "发散": "diverges", "越来越大": "keeps increasing",
    "突然变大": "jumps up", "突增": "jumps up", "上升": "increases", "增大": "increases", "非常大": "very large",
    "特别大": "very large", "很大": "very large", "下降": "decreases", "降低": "decreases",
    "无穷大": "infinite", "不正常": "abnormal",
    "断崖式下降": "drops suddenly", "断崖": "suddenly drops", "掉下去": "drops", "只有一个类别": "are the same class",
    "同一个类别": "the same class", "属于": "are", "都属于": "are", "没有变过": "does not change",
    "没变过": "does not change", "没有变": "does not change", "没动": "does not change", "没有动": "does not change",
    "就成了": "becomes", "成了": "becomes", "降得特别慢": "decreases very slowly", "降得很慢": "decreases very slowly",
    "下降很慢": "decreases very slowly", "下降得很慢": "decreases very slowly", "从头": "from scratch",
    "不学习": "does not learn", "学不到": "does not learn", "拟合不了": "does not converge", "卡住": "stuck",
    "乱码": "gibberish", "重复": "repeat", "空白": "blank", "全零": "all zero",
    "一样": "the same", "相同": "the same", "异常低": "abnormally low",
    "突然": "suddenly", "负数": "negative", "负值": "negative", "溢出": "overflow", "异常": "abnormal",
    "如果": "if", "没有": "no", "不是": "is not", "不会": "does not", "是否": "whether", "正常": "normal",
}  # fmt: skip


@cache
def _word() -> re.Pattern[str]:
    return re.compile("|".join(sorted(_WORDS, key=len, reverse=True)))


def from_chinese(text: str) -> str:
    """The text in which Chinese words of training are English; any other text as it is."""
    if not _HAN.search(text):
        return text
    english = _word().sub(lambda found: f" {_WORDS[found[0]]} ", text)
    for mark, latin in (("\uff0c", ", "), ("\u3002", ". "), ("\uff1f", "? "), ("\uff1a", ": "), ("\uff1b", "; ")):
        english = english.replace(mark, latin)
    return " ".join(_HAN.sub(" ", english).split())
