// The panels, what is in view, and everything that a hand can do to it.

const view = {
  runs: [], all: [], by: "step", unit: "step", low: 0, high: 1, cursor: null, selected: null, hidden: new Set(), panels: [], follow: true, smooth: USUAL, chosen: false, whole: [0, 1],
  lines() {
    const found = [];
    for (const run of this.runs) {
      if (this.hidden.has(run.id)) continue;
      for (const mark of run.marks) {
        if (LINES.includes(mark.kind) && !this.hidden.has(mark.kind)) found.push({ from: mark.from, color: color("line") });
      }
    }
    return found.slice(0, 200);
  },
};

function extent(runs) {
  let low = Infinity, high = -Infinity;
  for (const run of runs) {
    for (const series of Object.values(run.series)) {
      for (const step of series.x) { if (step < low) low = step; if (step > high) high = step; }
      for (const [first, last] of series.bad) { if (first < low) low = first; if (last > high) high = last; }
    }
  }
  if (low > high) return null;
  return low === high ? [low - 1, high + 1] : [low, high];
}

function setCurves(runs) {
  view.all = runs;
  if (!axesOf(runs).includes(view.by)) view.by = "step";
  Object.assign(view, placed(runs, view.by));
  const all = extent(view.runs);
  if (!all) { fill("curves"); view.panels = []; return; }
  if (view.follow) [view.low, view.high] = all;
  view.whole = all;
  if (document.getElementById("plot")) { buildLegend(); if (samePanels()) { drawCurves(); return; } }
  buildCurves();
}

function neededPanels() {
  return [...PANELS, ...signalPanels()].filter((spec) => view.runs.some((run) => Object.keys(run.series).some((name) => name === spec.key || (spec.with && spec.with.test(name)))));
}

// A row for each signal of the loop's own; what is read together stands in one.
function signalPanels() {
  const names = new Set(view.runs.flatMap((run) => Object.keys(run.series)).filter((name) => name.startsWith(SIGNAL)));
  const rows = TOGETHER.filter(({ key }) => names.has(key));
  const covered = (name) => rows.some((row) => row.key === name || row.with.test(name));
  const single = [...names].filter((name) => !covered(name)).map((key) => ({ key, title: titleOf(key) }));
  return [...rows, ...single].map((spec) => ({ height: 96, log: false, ...spec }));
}

function titleOf(name) {
  const words = name.replace(SIGNAL, "").replaceAll("_", " ");
  return words === "kl" ? "KL to the reference" : words.charAt(0).toUpperCase() + words.slice(1);
}

function samePanels() {
  return neededPanels().map((spec) => spec.key).join() === view.panels.map((panel) => panel.spec.key).join();
}

function buildCurves() {
  const logs = Object.fromEntries(view.panels.map((panel) => [panel.spec.key, panel.log]));
  view.panels = neededPanels().map((spec) => ({ spec, log: logs[spec.key] ?? spec.log, canvas: el("canvas", { class: "panel", "aria-hidden": "true" }) }));
  view.marks = el("canvas", { class: "panel", "aria-hidden": "true" });
  view.axis = el("canvas", { class: "panel", "aria-hidden": "true" });
  view.tip = el("div", { class: "tip", hidden: true });
  view.spoken = el("p", { class: "unseen", "aria-live": "polite" });
  const panels = view.panels.map((panel) => el("figure", {}, el("figcaption", {}, panel.spec.title, logButton(panel)), panel.canvas));
  const plot = el("div", {
    id: "plot", class: "plot", tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-describedby": "plot-help",
    "aria-label": `${view.panels.map((panel) => panel.spec.title).join(", ")} over ${whole(view.whole[0])} to ${whole(view.whole[1])} ${view.unit === "step" ? "steps" : view.unit}`,
  }, view.marks, panels, view.axis, view.tip);
  fill("curves",
    el("div", { class: "bar" }, el("h2", { id: "curves-title" }, "Curves"), el("div", { id: "legend", class: "legend" })),
    plot, view.spoken,
    el("p", { id: "plot-help", class: "help" },
      "Drag to zoom, double-click to see all, Ctrl and wheel to zoom at the pointer. With the keyboard: arrows move, + and − zoom, 0 shows all."),
    curveTables());
  buildLegend();
  listen(plot);
  drawCurves();
}

function logButton(panel) {
  const button = el("button", { type: "button", class: "chip small", "aria-pressed": String(panel.log), "aria-label": `Log scale of ${panel.spec.title.toLowerCase()}` }, "log");
  button.addEventListener("click", () => {
    panel.log = !panel.log;
    button.setAttribute("aria-pressed", String(panel.log));
    drawCurves();
  });
  return button;
}

function buildLegend() {
  const chips = axisButtons();
  if (view.runs.length > 1) {
    for (const run of view.runs) chips.push(toggle(run.id, run.name, runColor(run.place)));
  }
  for (const { kind, count } of kindsOf(view.runs)) {
    const words = `${whole(count)} ${count === 1 ? KINDS[kind].word : KINDS[kind].plural}`;
    chips.push(toggle(kind, words, view.runs.length > 1 ? null : color(KINDS[kind].tone)));
  }
  if (view.runs.some((run) => Object.values(run.series).some((series) => series.x.length >= FEW))) chips.push(smoothing());
  chips.push(el("button", { type: "button", class: "chip", id: "all", onclick: showAll }, "Show all"));
  document.getElementById("legend").replaceChildren(...chips);
}

// Dense curves have a trend by themselves; who moves the slider wants one everywhere.
function smoothing() {
  const slider = el("input", { type: "range", id: "smoothing", min: "0", max: "6", step: "1", value: String(view.smooth), "aria-label": "Smoothing" });
  slider.addEventListener("input", () => {
    view.smooth = Number(slider.value);
    view.chosen = true;
    drawCurves();
  });
  return el("label", { class: "smooth" }, "Smoothing", slider);
}

function toggle(key, words, shade) {
  const button = el("button", { type: "button", class: "chip", "aria-pressed": String(!view.hidden.has(key)) }, shade && swatchOf(shade), words);
  button.addEventListener("click", () => {
    if (!view.hidden.delete(key)) view.hidden.add(key);
    button.setAttribute("aria-pressed", String(!view.hidden.has(key)));
    drawCurves();
  });
  return button;
}

// Once a frame, however often the pointer moves.
function drawSoon() {
  if (view.due) return;
  view.due = true;
  requestAnimationFrame(() => { view.due = false; drawCurves(); });
}

function drawCurves() {
  if (!view.panels.length) return;
  drawMarks(view.marks, view);
  for (const panel of view.panels) drawPanel(panel, view);
  drawAxis();
}

function drawAxis() {
  const width = view.axis.clientWidth;
  if (!width) return;
  const context = canvasContext(view.axis, width, 24);
  const x = scaleOf(view.low, view.high, GUTTER, width - MARGIN, false);
  context.fillStyle = color("muted");
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.fillText(view.unit, GUTTER - 8, 10);
  for (const tick of ticks(x, Math.max(2, Math.floor(width / 110)), view.by === "step")) {
    const words = whole(Number(tick.toPrecision(12))), half = context.measureText(words).width / 2;
    context.textAlign = "center";
    context.fillText(words, Math.min(x.at(tick), width - half), 10);
  }
}

function showAll() {
  view.follow = true;
  [view.low, view.high] = view.whole;
  drawCurves();
}

function zoomTo(low, high) {
  const [first, last] = view.whole;
  const least = view.by === "step" ? Math.min(4, last - first) : (last - first) / 1000;
  if (high - low < least) { const middle = (low + high) / 2; low = middle - least / 2; high = middle + least / 2; }
  view.low = Math.max(first, low);
  view.high = Math.min(last, high);
  view.follow = view.low <= first && view.high >= last;
  drawCurves();
}

function zoomBy(factor, centre) {
  zoomTo(centre - (centre - view.low) * factor, centre + (view.high - centre) * factor);
}
