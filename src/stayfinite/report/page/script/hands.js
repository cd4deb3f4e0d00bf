// Pointer, wheel and keyboard over the panels.

function listen(plot) {
  let began = null;
  const stepAt = (event) => {
    const box = plot.getBoundingClientRect();
    const x = scaleOf(view.low, view.high, GUTTER, view.axis.clientWidth - MARGIN, false);
    const place = x.value(event.clientX - box.left - (view.axis.offsetLeft || 0));
    return Math.min(view.high, Math.max(view.low, place));
  };
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button")) return;
    began = stepAt(event);
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    view.cursor = stepAt(event);
    view.selected = began === null ? null : [Math.min(began, view.cursor), Math.max(began, view.cursor)];
    drawSoon();
    showTip(event.clientX - plot.getBoundingClientRect().left, event.clientY - plot.getBoundingClientRect().top);
  });
  plot.addEventListener("pointerup", () => {
    const chosen = view.selected;
    began = view.selected = null;
    if (chosen && chosen[1] - chosen[0] > (view.high - view.low) / 100) zoomTo(chosen[0], chosen[1]);
    else drawCurves();
  });
  plot.addEventListener("pointerleave", () => { if (began === null) leave(); });
  plot.addEventListener("pointercancel", () => { began = view.selected = null; leave(); });
  plot.addEventListener("dblclick", (event) => { if (!event.target.closest("button")) showAll(); });
  plot.addEventListener("wheel", (event) => {
    // The page scrolls as ever, unless somebody means the chart.
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== plot) return;
    event.preventDefault();
    zoomBy(event.deltaY > 0 ? 1.25 : 0.8, stepAt(event));
  }, { passive: false });
  plot.addEventListener("keydown", (event) => { if (event.target === plot && keyed(event)) event.preventDefault(); });
  plot.addEventListener("blur", leave);
}

function keyed(event) {
  const span = view.high - view.low;
  const middle = view.cursor ?? (view.low + view.high) / 2;
  const moves = { ArrowLeft: -1, ArrowRight: 1 };
  if (event.key in moves && event.shiftKey) {
    const by = Math.max(view.whole[0] - view.low, Math.min(view.whole[1] - view.high, moves[event.key] * span / 4));
    zoomTo(view.low + by, view.high + by);
  } else if (event.key in moves) {
    moveCursor(moves[event.key]);
  } else if (event.key === "Home" || event.key === "End") {
    view.cursor = event.key === "Home" ? view.low : view.high;
    say();
  } else if (event.key === "+" || event.key === "=") zoomBy(0.6, middle);
  else if (event.key === "-" || event.key === "−") zoomBy(1 / 0.6, middle);
  else if (event.key === "0" || event.key === "Escape") { leave(); showAll(); }
  else return false;
  return true;
}

// To the next point of the first curve, so that no point is passed over.
function moveCursor(direction) {
  const series = view.runs.filter((run) => !view.hidden.has(run.id)).map((run) => Object.values(run.series)[0]).find(Boolean);
  if (!series) return;
  const steps = [...new Set(series.x)].filter((step) => step >= view.low && step <= view.high).sort((a, b) => a - b);
  if (!steps.length) return;
  const from = view.cursor ?? (direction > 0 ? -Infinity : Infinity);
  const next = direction > 0 ? steps.find((step) => step > from) : steps.findLast((step) => step < from);
  view.cursor = next ?? (direction > 0 ? steps[steps.length - 1] : steps[0]);
  say();
}

function say() {
  drawCurves();
  const x = scaleOf(view.low, view.high, GUTTER, view.axis.clientWidth - MARGIN, false);
  showTip(x.at(view.cursor), 24);
  view.spoken.textContent = view.tip.innerText.replace(/\s*\n\s*/g, ", ");
}

function leave() {
  if (view.cursor === null) return;
  view.cursor = null;
  view.tip.hidden = true;
  drawCurves();
}

function showTip(left, top) {
  const reach = (view.high - view.low) / Math.max(1, view.axis.clientWidth) * 4;
  const rows = [];
  for (const run of view.runs) {
    if (view.hidden.has(run.id)) continue;
    const values = [];
    for (const { spec } of view.panels) {
      for (const [name, series] of Object.entries(run.series)) {
        if (name !== spec.key && !(spec.with && spec.with.test(name))) continue;
        values.push([name === spec.key ? spec.title.toLowerCase() : name, valueNear(series, view.cursor)]);
      }
    }
    rows.push(...(view.runs.length > 1 ? tipRun(run, values) : values.map((pair) => tipRow(pair, runColor(run.place)))));
  }
  const notes = view.runs.filter((run) => !view.hidden.has(run.id)).flatMap((run) => marksNear(run, view.cursor, reach))
    .filter((mark) => !view.hidden.has(mark.kind)).slice(0, 3);
  view.tip.replaceChildren(el("p", { class: "tip-step" }, view.by === "step" ? `step ${whole(Math.round(view.cursor))}` : `${number(view.cursor)} ${view.unit}`), ...rows, ...notes.map(tipNote));
  view.tip.hidden = false;
  const room = view.axis.clientWidth, wide = view.tip.offsetWidth;
  view.tip.style.left = `${left + 16 + wide > room ? Math.max(0, left - wide - 16) : left + 16}px`;
  view.tip.style.top = `${Math.max(0, top - 12)}px`;
}

function tipRow([name, value], shade) {
  return el("p", {}, swatchOf(shade), `${name} `, el("b", {}, value));
}

function tipRun(run, values) {
  const told = values.map(([name, value]) => [el("span", { class: "pair" }, `${name} `, el("b", {}, value)), " "]);
  return [el("p", {}, swatchOf(runColor(run.place)), run.name), el("p", { class: "tip-values" }, told)];
}

function tipNote(mark) {
  const [from, to] = mark.steps || [mark.from, mark.to];
  const what = mark.count > 1 ? `${whole(mark.count)} ${KINDS[mark.kind].plural}, step ${whole(from)} to ${whole(to)}` : `${KINDS[mark.kind].word}, step ${whole(from)}`;
  const words = mark.text.length > 140 ? `${mark.text.slice(0, 139)}…` : mark.text;
  return el("p", { class: "tip-note" }, el("b", {}, what), words && `: ${words}`);
}

function valueNear(series, step) {
  const near = view.by === "step" ? 0.5 : (view.high - view.low) / 1000;
  const here = series.bad.find(([first, last]) => first - near <= step && step <= last + near);
  const place = nearest(series, step);
  if (here && (place < 0 || Math.abs(series.x[place] - step) > near)) return here[3];
  return place < 0 ? "–" : number(series.y[place]);
}
