"""Settings as the rules see them."""

from stayfinite.core.settings import LONGEST_TEXT, MOST_TEXT, Setting, Settings


def test_rules_search_a_bounded_text_however_large_the_values_are():
    settings = Settings(
        [Setting("lr", 0.1, "a.yaml"), *(Setting(f"s{n}", "x " * 10_000, "a.yaml") for n in range(200))]
    )
    texts = [text for _, text in settings.texts()]
    assert texts[0] == "lr: 0.1"
    assert max(map(len, texts)) == LONGEST_TEXT
    assert sum(map(len, texts)) <= MOST_TEXT
    assert settings.value("s199") == "x " * 10_000
