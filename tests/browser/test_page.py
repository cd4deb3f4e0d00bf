"""The page in a real browser: it draws, answers to hands and keys, can be read, and runs nothing that it was given."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from planted_runs import an_autopsy, an_incident, plant_run
from stayfinite.core.curve import Curve
from stayfinite.guard.telling.showing import shown_runs
from stayfinite.report.page import html
from stayfinite.report.page.data import page_data
from stayfinite.report.page.html import write_page
from stayfinite.report.page.series import series_data

PLOT = "#plot"
AXIS = "() => document.querySelector('#plot > canvas:last-of-type').toDataURL()"
COLOURS = """selector => {
  const canvas = document.querySelector(selector);
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const colors = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 200) colors.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
  }
  return colors.size;
}"""
CURVE = """selector => {
  const canvas = document.querySelector(selector);
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const words = getComputedStyle(document.documentElement).getPropertyValue('--run-0').trim();
  const [red, green, blue] = [1, 3, 5].map((place) => parseInt(words.slice(place, place + 2), 16));
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    const away = Math.abs(data[i] - red) + Math.abs(data[i + 1] - green) + Math.abs(data[i + 2] - blue);
    if (data[i + 3] > 150 && away < 40) count += 1;
  }
  return count;
}"""
CONTRASTS = """() => {
  const part = (value) => { value /= 255; return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const rgba = (words) => words.match(/[\\d.]+/g).map(Number);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const back = rgba(getComputedStyle(at).backgroundColor);
      if (back.length < 4 || back[3] === 1) return back;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll('main *, header *, footer')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest('.unseen, .skip')) continue;
    const [one, other] = [light(rgba(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
    const words = node.tagName + '.' + node.className + ': ' + node.textContent.slice(0, 40);
    found.push([(one + 0.05) / (other + 0.05), words]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}"""


@pytest.fixture
def page_of(tmp_path):
    def make(*runs):
        write_page(page_data(shown_runs(runs)), tmp_path / "page.html")
        return tmp_path / "page.html"

    return make


@pytest.fixture
def explained(tmp_path):
    incident = an_incident(rows=[{"row": 3, "text": "• a bullet"}, {"row": 0, "text": "plain"}])
    return plant_run(tmp_path / "first", incident=incident, autopsy=an_autopsy())


def test_everything_is_drawn_and_nothing_is_complained_of(tab, page_of, explained):
    view = tab().open(page_of(explained))
    page = view.page
    assert view.complaints == []
    assert "3 of 120 steps were refused" in page.inner_text("#verdict .sentence")
    assert page.locator("#findings .card").first.inner_text().startswith("fp16-overflow")
    assert page.locator("#findings .pill.good").first.inner_text() == "proved by bf16"
    assert page.locator("#plot figure canvas").count() == 4
    for place in range(1, 5):
        assert view.page.evaluate(CURVE, f"#plot figure:nth-of-type({place}) canvas") > 200
    assert view.page.evaluate(COLOURS, "#layers canvas.heat") > 8
    marks = page.inner_text("#incidents")
    for words in ("✓ finite", "✗ NaN or inf", "could not run", "aten.mm", "• a bullet", "bad", "use bf16"):
        assert words in marks
    assert "512 MiB" in page.inner_text("#details")


def test_signals_have_rows_of_their_own_and_answers_stand_side_by_side(tab, page_of, tmp_path):
    rows = [
        {"row": row, "text": f"advantage {row}, largest ratio nan, reward right 0\nprompt: 3 + {row}\nanswer: {said}"}
        for row, said in enumerate(["four", "five\n\nanswer: six", "seven"])
    ]
    run = plant_run(
        tmp_path / "rl", incident=an_incident(rows=rows), autopsy=an_autopsy() | {"rows": [1]},
        signals=lambda step: {"kl": 0.01 * step, "reward": 0.5, "reward/right": 0.4, "cut_off": 0.1, "repeats": 0.2},
    )  # fmt: skip
    view = tab().open(page_of(run))
    assert view.complaints == []
    titles = [each.removesuffix("log").strip() for each in view.page.locator("#plot figcaption").all_inner_texts()]
    assert titles[4:] == ["Reward", "Truncated, repeating", "KL to the reference"]
    for place in range(5, 8):
        assert view.page.evaluate(CURVE, f"#plot figure:nth-of-type({place}) canvas") > 200
    table = view.page.locator("[aria-label='Answers of the batch']")
    assert table.locator("th[scope=col]").all_inner_texts() == ["row", "", "figures", "prompt", "answer"]
    first = [cell.strip() for cell in table.locator("tbody tr").first.locator("th, td").all_inner_texts()]
    assert first[:2] == ["1", "bad"]
    assert first[2].split("\n") == ["advantage 1", "largest ratio nan", "reward right 0"]
    assert first[3:] == ["3 + 1", "five\n\nanswer: six"]


def test_a_page_without_points_is_blank_where_the_other_is_not(tab, page_of, explained, tmp_path):
    # The counterpart of the test above: the same look at pixels can also say that nothing was drawn.
    view = tab().open(page_of(explained))
    view.see("""() => stayfinite.update({runs: [{
      id: 'r0', name: 'x', source: '', verdict: 'unknown', sentence: '', figures: [], findings: [], marks: [],
      series: {loss: {x: [1, 2], y: [], bad: []}}, layers: null, incidents: [], details: [],
    }]})""")
    assert view.page.evaluate(CURVE, "#plot figure canvas") == 0


def test_the_time_axis_has_no_tick_between_two_steps(tab):
    scales = (Path(html.__file__).parent / "script" / "scales.js").read_text()
    asked = "[[0, 2], [1, 4], [1, 7], [0, 0.9]].map(([low, high]) => ticks({ low, high }, 9, true))"
    *steps, part_of_an_epoch = tab().see(f"() => {{ {scales}; return {asked}; }}")
    assert steps == [[0, 1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7]]
    assert len(part_of_an_epoch) > 4


def test_hovering_tells_step_and_values(tab, page_of, explained):
    view = tab().open(page_of(explained))
    view.page.locator(PLOT).hover(position={"x": 600, "y": 200})
    told = view.page.inner_text("#plot .tip")
    assert told.startswith("step ")
    for name in ("loss", "gradient norm", "learning rate", "loss scale"):
        assert name in told


def test_dragging_zooms_and_a_double_click_shows_all_again(tab, page_of, explained):
    view = tab().open(page_of(explained))
    before = axis_of(view)
    box = view.page.locator("#plot figure canvas").first.bounding_box()
    view.page.mouse.move(box["x"] + 400, box["y"] + 80)
    view.page.mouse.down()
    view.page.mouse.move(box["x"] + 600, box["y"] + 80, steps=4)
    view.page.mouse.up()
    view.page.mouse.move(5, 5)
    zoomed = axis_of(view)
    assert zoomed != before
    view.page.mouse.dblclick(box["x"] + 400, box["y"] + 80)
    view.page.mouse.move(5, 5)
    assert axis_of(view) == before


def test_the_wheel_zooms_only_where_somebody_means_the_chart(tab, page_of, explained):
    view = tab().open(page_of(explained))
    before = axis_of(view)
    view.page.locator(PLOT).hover(position={"x": 600, "y": 200})
    view.page.mouse.wheel(0, -200)
    view.page.wait_for_timeout(80)
    assert axis_of(view) == before
    view.page.keyboard.down("Control")
    view.page.locator(PLOT).hover(position={"x": 600, "y": 200})
    view.page.mouse.wheel(0, -200)
    view.page.keyboard.up("Control")
    view.page.wait_for_function(f"before => ({AXIS})() != before", arg=before)  # the wheel is not waited for


def test_keys_move_zoom_and_speak(tab, page_of, explained):
    view = tab().open(page_of(explained))
    before = axis_of(view)
    view.page.focus(PLOT)
    view.page.keyboard.press("ArrowRight")
    assert view.page.inner_text("#curves [aria-live]").startswith("step 1, loss ")
    view.page.keyboard.press("+")
    assert axis_of(view) != before
    view.page.keyboard.press("0")
    assert axis_of(view) == before


def test_a_run_and_a_kind_of_mark_can_be_hidden(tab, page_of, explained, tmp_path):
    other = plant_run(tmp_path / "second", vetoes=(), steps=60)
    view = tab().open(page_of(explained, other))
    canvas = "#plot figure canvas"
    both = view.see(f"() => document.querySelector('{canvas}').toDataURL()")
    button = view.page.locator("#legend").get_by_role("button", name="second", exact=True)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert view.see(f"() => document.querySelector('{canvas}').toDataURL()") != both
    marks = view.see("() => document.querySelector('#plot > canvas').toDataURL()")
    view.page.get_by_role("button", name="3 refused").click()
    assert view.see("() => document.querySelector('#plot > canvas').toDataURL()") != marks
    assert view.complaints == []


def three_logs(tmp_path):
    for name, rate, fp16 in (("a", 0.1, True), ("b", 0.2, True), ("c", 0.3, False)):
        skips = "".join(f"step {step} loss {1 + rate * 9 / step:.4f} lr {rate}\n" for step in range(1, 60))
        (tmp_path / f"{name}.log").write_text(skips)
        (tmp_path / f"{name}.yaml").write_text(f"learning_rate: {rate}\nfp16: {fp16}\nseed: 1\n")
    return [tmp_path / f"{name}.{kind}" for name in "abc" for kind in ("log", "yaml")]


def test_what_differs_between_runs_comes_first(tab, tmp_path):
    write_page(page_data(shown_runs(three_logs(tmp_path))), tmp_path / "page.html")
    seen = tab().open(tmp_path / "page.html")
    rows = seen.see("[...document.querySelectorAll('#differences tbody tr')].map(row => row.innerText.split(/\\s+/))")
    assert rows == [["learning_rate", "0.1", "0.2", "0.3"], ["fp16", "yes", "yes", "no"]]
    assert seen.see("document.querySelector('main > section:not([hidden])').id") == "differences"
    assert seen.complaints == []


def test_the_marks_of_several_runs_lie_in_lanes_of_their_own(tab, page_of, explained, tmp_path):
    others = [plant_run(tmp_path / name, vetoes=(40,)) for name in ("second", "third")]
    strip = "document.querySelector('#plot > canvas').clientHeight"
    alone = tab().open(page_of(explained)).see(strip)
    view = tab().open(page_of(explained, *others))
    assert view.see(strip) >= alone + 4 * 17  # refused steps and checkpoints of two more runs
    assert view.complaints == []


def test_runs_can_be_drawn_over_time(tab, tmp_path):
    runs = shown_runs(three_logs(tmp_path))
    runs[0]["axes"], runs[1]["axes"] = {"time": [[1, 0], [59, 600]]}, {"time": [[1, 0], [59, 1200]]}
    write_page(page_data(runs), tmp_path / "page.html")
    seen = tab().open(tmp_path / "page.html")
    before = seen.see("document.querySelector('#plot figure canvas').toDataURL()")
    seen.page.get_by_role("button", name="Time", exact=True).click()
    assert seen.see("document.querySelector('#plot figure canvas').toDataURL()") != before
    seen.page.locator("#plot figure canvas").first.hover(position={"x": 600, "y": 60})
    assert "minutes" in seen.see("document.querySelector('.tip').innerText")
    assert not seen.page.get_by_role("button", name="c.log", exact=True).count()  # it cannot tell
    assert "no time in c.log" in seen.see("document.getElementById('legend').innerText")
    seen.page.get_by_role("button", name="Step", exact=True).click()
    assert seen.page.get_by_role("button", name="c.log", exact=True).count()
    assert seen.complaints == []


def test_smoothing_can_be_chosen(tab, tmp_path):
    write_page(page_data(shown_runs(three_logs(tmp_path))), tmp_path / "page.html")
    seen = tab().open(tmp_path / "page.html")
    before = seen.see("document.querySelector('#plot figure canvas').toDataURL()")
    seen.page.locator("#smoothing").fill("4")
    assert seen.see("document.querySelector('#plot figure canvas').toDataURL()") != before


def test_a_table_that_is_wider_than_a_telephone_says_that_it_scrolls(tab, tmp_path):
    write_page(page_data(shown_runs(three_logs(tmp_path))), tmp_path / "page.html")
    shown = "!document.querySelector('#differences .swipe').hidden"
    assert not tab().open(tmp_path / "page.html").see(shown)
    seen = tab(viewport={"width": 240, "height": 640}).open(tmp_path / "page.html")
    seen.page.wait_for_function(f"() => {shown}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_are_legible(tab, page_of, explained, scheme):
    view = tab(color_scheme=scheme).open(page_of(explained))
    assert view.see("() => document.documentElement.dataset.theme") == scheme
    for detail in view.page.locator("details").all():
        detail.evaluate("node => { node.open = true; }")
    contrasts = view.see(CONTRASTS)
    assert len(contrasts) > 80
    assert [each for each in contrasts if each[0] < 4.5] == []


def test_the_button_changes_the_theme_and_the_canvases_with_it(tab, page_of, explained):
    view = tab().open(page_of(explained))
    canvas = "() => document.querySelector('#plot figure canvas').toDataURL()"
    light = view.see(canvas)
    view.page.click("#theme")
    assert view.see("() => document.documentElement.dataset.theme") == "dark"
    assert view.see(canvas) != light


def test_the_curves_can_be_read_as_tables(tab, page_of, explained):
    view = tab().open(page_of(explained))
    view.page.get_by_text("The curves as tables").click()
    view.page.wait_for_selector("#curves table")
    rows = view.page.locator("#curves table").first.locator("tbody tr")
    assert rows.count() > 100
    assert rows.nth(39).inner_text().split()[:3] == ["40", "NaN", "inf"]


EVIL = (
    "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script></script>\u2028`${alert(1)}`"
)


def test_a_hostile_run_runs_no_script(tab, page_of, tmp_path):
    names = (f"encoder.{EVIL}", f"javascript:{EVIL}", "__proto__.weight")
    autopsy = an_autopsy(cause=EVIL, verdict=EVIL, chain=[EVIL], fix={"text": EVIL, "verified": True, "by": EVIL})
    autopsy["origin"] |= {"operator": EVIL, "module": EVIL, "file": EVIL}
    autopsy["worlds"][0] |= {"name": EVIL, "change": EVIL}
    incident = an_incident(rows=[{"row": 3, "text": EVIL}], trigger=EVIL, device=EVIL, batch={"words": EVIL})
    run = plant_run(tmp_path / "<img src=x onerror=alert(1)>", names=names, incident=incident, autopsy=autopsy)
    with (run / "events.jsonl").open("a") as file:
        file.write(
            '{"version": 1, "time": "x", "event": "veto", "step": 100, "code": "<b>", '
            '"reason": "</script><script>document.title=1</script>"}\n'
        )
    view = tab()
    spoken = []
    view.page.on("dialog", lambda dialog: (spoken.append(dialog.message), dialog.dismiss()))
    view.open(page_of(run))
    for detail in view.page.locator("details").all():
        detail.evaluate("node => { node.open = true; }")
    view.page.locator("#layers canvas.heat").hover(position={"x": 700, "y": 8})
    view.page.locator(PLOT).hover(position={"x": 900, "y": 200})
    view.page.wait_for_timeout(100)
    assert spoken == []
    assert view.complaints == []
    assert view.page.title().startswith("<img src=x onerror=alert(1)>")
    assert view.page.locator("img, main script, iframe").count() == 0
    assert EVIL[:30] in view.page.inner_text("#incidents")
    assert EVIL[:30] in view.page.inner_text("#layers")


def test_the_policy_stops_a_script_that_is_not_the_pages_own(tab, page_of, explained):
    page = page_of(explained)
    page.write_text(page.read_text().replace("<main", "<script>document.title='taken'</script><main"))
    view = tab().open(page)
    assert view.page.title() != "taken"
    assert any("Content Security Policy" in said for said in view.complaints)


def test_a_hundred_thousand_steps_open_in_two_seconds(tab, tmp_path, explained):
    run = shown_runs([explained])[0]
    curves = {name: Curve() for name in ("loss", "grad_norm", "lr", "loss_scale")}
    for step in range(100_000):
        for place, curve in enumerate(curves.values()):
            curve.add(step, float("nan") if step % 997 == 0 else 1 + (step * 7919 + place) % 1000 / 250)
    run["series"] = series_data(curves)
    size = write_page(page_data([run]), tmp_path / "long.html")
    assert size < 1_000_000
    seconds = [math.inf]
    while min(seconds) >= 2.0 and len(seconds) <= 12:  # other tests run beside this one: one quiet moment is enough
        view = tab()
        begun = time.perf_counter()
        view.open(tmp_path / "long.html")
        view.see("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        seconds.append(time.perf_counter() - begun)
        assert view.complaints == []
    assert min(seconds) < 2.0


def test_an_increment_is_drawn_and_leaves_what_was_opened(tab, page_of, explained):
    view = tab().open(page_of(explained))
    view.page.locator("#rules details").first.evaluate("node => { node.open = true; }")
    before = view.see("() => document.querySelector('#plot figure canvas').toDataURL()")
    view.see("""() => stayfinite.update({patches: [{id: 'r0', append: {
      series: {loss: {x: [121, 122], y: [9, 12], bad: []}},
      marks: [{kind: 'veto', from: 122, to: 122, count: 1, text: 'fresh'}]}, set: {sentence: 'It turned.'}}]})""")
    assert view.see("() => document.querySelector('#plot figure canvas').toDataURL()") != before
    assert view.page.inner_text("#verdict .sentence") == "It turned."
    assert view.page.get_by_role("button", name="4 refused").count() == 1
    assert view.page.locator("#rules details").first.evaluate("node => node.open")


def test_it_fits_a_telephone_and_prints(tab, page_of, explained):
    view = tab(viewport={"width": 390, "height": 800}).open(page_of(explained))
    assert view.see("() => document.documentElement.scrollWidth <= innerWidth")
    printed = view.page.pdf()
    assert printed.startswith(b"%PDF")
    assert view.complaints == []


def test_no_name_is_too_long_for_paper(tab, page_of, tmp_path):
    names = tuple(
        f"encoder.block.{place}.layer.1.DenseReluDense.a_rather_long_name_for_a_part.weight" for place in (1, 11)
    )
    run = plant_run(tmp_path / "run", names=names, incident=an_incident(), autopsy=an_autopsy())
    view = tab(viewport={"width": 690, "height": 900}).open(page_of(run))
    view.page.emulate_media(media="print")
    assert view.see("() => document.documentElement.scrollWidth <= innerWidth")


def axis_of(view) -> str:
    """The axis of steps as it is drawn."""
    return view.see(AXIS)
