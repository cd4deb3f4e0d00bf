"""Every rule is whole: code, slug, page, fix, a case on which it fires and a look-alike on which it is quiet."""

import importlib
import re
from pathlib import Path

import pytest

from stayfinite.errors import UsageError
from stayfinite.rules.ranking import SYMPTOMS, rank
from stayfinite.rules.registry import FAMILIES, all_rules, family_of, rule_of
from stayfinite.rules.rule import SECTIONS

FOLDERS = (
    "precision",
    "optimization",
    "data",
    "gradient_flow",
    "device",
    "numerics",
    "checkpoint",
    "evaluation",
    "harmless",
)
EXAMPLES = {
    slug: pair
    for folder in FOLDERS
    for slug, pair in importlib.import_module(f"rules.{folder}_examples").EXAMPLES.items()
}
RULES = pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.slug)

CAUSES = (Path(__file__).parent / "causes.txt").read_text().split()


def test_every_known_cause_is_a_rule_and_every_rule_a_known_cause():
    assert sorted(rule.slug for rule in all_rules()) == sorted(CAUSES)


def test_codes_are_unique_and_say_the_family():
    codes = [rule.code for rule in all_rules()]
    assert len(set(codes)) == len(codes)
    for rule in all_rules():
        assert re.fullmatch(r"SF[1-9]\d\d", rule.code)
        folder = FAMILIES[family_of(rule)].__name__.rpartition(".")[2]
        module = importlib.import_module(f"stayfinite.rules.{folder}.{rule.slug.replace('-', '_')}")
        assert (module.RULE.code, module.__doc__) == (rule.code, rule.page)


@RULES
def test_a_rule_explains_itself_in_all_sections(rule):
    assert rule.title.endswith(".")
    assert rule.fix
    headings = re.findall(r"^## (.+)$", rule.page, re.MULTILINE)
    assert tuple(headings) == SECTIONS
    for section in SECTIONS:
        assert len(rule.section(section)) > 40, section


@RULES
def test_what_is_harmless_and_only_that_is_an_info(rule):
    assert (rule.severity == "info") == rule.code.startswith("SF9")


@RULES
def test_a_rule_outranks_only_rules_that_exist_and_never_in_a_circle(rule):
    for slug in rule.beats:
        assert rule.slug not in rule_of(slug).beats, f"{rule.slug} and {slug} beat each other"


@RULES
def test_a_rule_fires_on_its_case_as_the_likeliest_cause(rule):
    found = rank(EXAMPLES[rule.slug][0].facts(), all_rules())
    assert found, "nothing was found"
    # A symptom stands behind the causes that it may have.
    likeliest = {each.cause for each in found} if rule.slug in SYMPTOMS else {found[0].cause}
    assert rule.slug in likeliest, [f"{f.cause} {f.confidence}" for f in found]


@RULES
def test_a_rule_is_quiet_on_the_look_alike(rule):
    facts = EXAMPLES[rule.slug][1].facts()
    found = rank(facts, all_rules())
    loud = ("error", "warning", "info") if rule.severity == "info" else ("error", "warning")
    firm = [f for f in found if f.cause == rule.slug and f.severity in loud and (f is found[0] or f.confidence >= 0.5)]
    assert not firm


@pytest.mark.parametrize("name", ["SF103", "sf103", "103", "double-fp16", "double_fp16"])
def test_a_rule_is_found_by_code_or_slug(name):
    assert rule_of(name).slug == "double-fp16"


def test_an_unknown_rule_is_answered_with_the_nearest():
    for name, meant in (("double-fp61", "double-fp16"), ("overflow", "fp16-overflow"), ("sf199", "SF1")):
        with pytest.raises(UsageError, match=f"did you mean {meant}"):
            rule_of(name)
