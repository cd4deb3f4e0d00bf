// One panel: the curves of all runs that have this number, on the time axis that all panels share.

const GUTTER = 80, MARGIN = 20;
const DENSE = 500; // points in view from which on a curve is drawn faintly, with its trend over it
const FEW = 12; // points from which on one can be asked for
const USUAL = 2; // of the strengths of smoothing, 0 for none to 6; each doubles the reach
const MOST_BANDS = 40; // more than these are told by their ticks alone
const PANELS = [
  { key: "loss", title: "Loss", height: 230, log: true, with: /^(eval_loss|val_loss|valid_loss|validation_loss|test_loss|dev_loss|part: .*)$/ },
  { key: "grad_norm", title: "Gradient norm", height: 140, log: true },
  { key: "lr", title: "Learning rate", height: 96, log: false },
  { key: "loss_scale", title: "Loss scale", height: 96, log: true },
];
const SIGNAL = "signal: ";
const TOGETHER = [
  { key: "signal: reward", title: "Reward", with: /^signal: reward\/.*$/ },
  { key: "signal: chosen_logp", title: "Log-probability of chosen and rejected", with: /^signal: rejected_logp$/ },
  { key: "signal: cut_off", title: "Truncated, repeating", with: /^signal: repeats$/ },
];

function drawPanel(panel, view) {
  const { canvas, spec } = panel;
  const width = canvas.clientWidth;
  if (!width) return;
  const height = spec.height;
  const context = canvasContext(canvas, width, height);
  const shown = curvesOf(spec, view);
  const x = scaleOf(view.low, view.high, GUTTER, width - MARGIN, false);
  const y = valueScale(shown, view, spec, panel.log, height);
  panel.x = x;
  drawGrid(context, x, y, width, height);
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, width - MARGIN - GUTTER, height);
  context.clip();
  for (const curve of shown) drawBad(context, curve, x, height, view.runs.length > 1);
  for (const mark of view.lines()) drawLine(context, x.at(mark.from), height, mark.color);
  for (const curve of shown) drawCurve(context, curve, x, y, view);
  if (view.cursor !== null) {
    drawLine(context, x.at(view.cursor), height, color("muted"));
    for (const curve of shown) drawDot(context, curve, x, y, view.cursor);
  }
  if (view.selected) drawSelection(context, x, height, view.selected);
  context.restore();
}

function curvesOf(spec, view) {
  const found = [];
  for (const run of view.runs) {
    if (view.hidden.has(run.id)) continue;
    for (const [name, series] of Object.entries(run.series)) {
      const main = name === spec.key;
      if (!main && !(spec.with && spec.with.test(name))) continue;
      found.push({ run, name, series, color: runColor(run.place), main });
    }
  }
  return found.sort((one, other) => Number(one.main) - Number(other.main));
}

function valueScale(shown, view, spec, log, height) {
  let low = Infinity, high = -Infinity, positive = Infinity;
  for (const { series } of shown) {
    for (let i = 0; i < series.x.length; i += 1) {
      if (series.x[i] < view.low || series.x[i] > view.high) continue;
      const value = series.y[i];
      if (value < low) low = value;
      if (value > high) high = value;
      if (value > 0 && value < positive) positive = value;
    }
  }
  if (low > high) { low = 0; high = 1; }
  const usesLog = log && low >= 0 && high > 0, hasZero = low === 0;
  if (usesLog) low = low > 0 ? low : positive;
  const room = usesLog ? Math.max(1.08, (high / low) ** 0.06) : (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  const bottom = usesLog ? low / room : low - (low >= 0 ? Math.min(room, low) : room), top = usesLog ? high * room : high + room;
  return Object.assign(scaleOf(bottom, top, height - 8, 10, usesLog), { floor: usesLog && hasZero });
}

function drawGrid(context, x, y, width, height) {
  context.strokeStyle = color("grid");
  context.fillStyle = color("muted");
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const tick of ticks(y, Math.max(2, Math.floor(height / 36)))) {
    const place = Math.round(y.at(tick)) + 0.5;
    line(context, GUTTER, place, width - MARGIN, place);
    if (place > 6 && place < height - (y.floor ? 20 : 4)) context.fillText(number(tick), GUTTER - 8, place);
  }
  // A 0 has no place on a log scale: it lies on the floor.
  if (y.floor) context.fillText("0", GUTTER - 8, height - 8);
  for (const tick of ticks(x, Math.max(2, Math.floor(width / 110)), view.by === "step")) {
    const place = Math.round(x.at(tick)) + 0.5;
    line(context, place, 0, place, height);
  }
}

function drawCurve(context, curve, x, y, view) {
  const { series } = curve;
  const count = inView(series, view);
  const faint = view.smooth > 0 && curve.main && (view.chosen ? count >= FEW : count > DENSE && rough(series));
  context.strokeStyle = context.fillStyle = curve.color;
  context.lineWidth = faint ? 1 : curve.main ? 1.5 : 1.1;
  context.globalAlpha = faint ? 0.28 : curve.main ? 1 : 0.75;
  context.setLineDash(curve.main ? [] : [5, 3]);
  context.lineJoin = "round";
  trace(context, series, series.y, x, y);
  context.setLineDash([]);
  if (count <= 60) {
    for (let i = 0; i < series.x.length; i += 1) dot(context, x.at(series.x[i]), y.at(series.y[i]), 2);
  }
  context.globalAlpha = 1;
  if (!curve.main) nameCurve(context, curve, x, y);
  if (!faint) return;
  context.lineWidth = 2;
  trace(context, series, trend(series, view.smooth), x, y);
}

// What is not the panel's own number has its name at its end.
function nameCurve(context, { name, series }, x, y) {
  const last = series.x.length - 1;
  if (last < 0) return;
  const words = name.replace("part: ", "").replace(SIGNAL, "").replaceAll("_", " ");
  context.textAlign = "right";
  context.textBaseline = "bottom";
  context.fillText(fitting(context, words, 160), Math.min(x.at(series.x[last]), x.at(x.high)) - 2, Math.max(12, y.at(series.y[last]) - 3));
}

function trace(context, series, values, x, y) {
  const gaps = gapsOf(series);
  context.beginPath();
  for (let i = 0; i < values.length; i += 1) {
    if (gaps.has(i)) context.moveTo(x.at(series.x[i]), y.at(values[i]));
    else context.lineTo(x.at(series.x[i]), y.at(values[i]));
  }
  context.stroke();
}

// What is worked out of a series is kept with it until it grows.
function kept(series, name, work) {
  const memory = (series.memory ??= {});
  const stamp = series.x.length + series.bad.length * 1e7;
  if (!memory[name] || memory[name].stamp !== stamp) memory[name] = { stamp, value: work() };
  return memory[name].value;
}

// The points to which no line leads: a value that is not finite lies before them, or a resumed run comes by again.
function gapsOf(series) {
  return kept(series, "gaps", () => {
    const gaps = new Set([0]);
    let span = 0;
    for (let i = 1; i < series.x.length; i += 1) {
      const from = series.x[i - 1], to = series.x[i];
      if (to < from) { gaps.add(i); span = 0; continue; }
      while (span < series.bad.length && series.bad[span][0] <= from) span += 1;
      const between = series.bad[span];
      if (between && between[1] < to && to - from <= 2 * (between[1] - between[0] + 2)) gaps.add(i);
    }
    return gaps;
  });
}

// The mean of the middle half of the points around each one; of their logarithms, where they have some.
function trend(series, strength) {
  return kept(series, `trend ${strength}`, () => {
    const reach = Math.max(2, Math.round(Math.max(4, series.y.length / 160) * 2 ** (strength - USUAL)));
    const positive = series.y.every((value) => value > 0);
    const values = positive ? series.y.map(Math.log) : series.y;
    return values.map((_, i) => {
      const near = Float64Array.from(values.slice(Math.max(0, i - reach), i + reach)).sort();
      const middle = near.subarray(near.length >> 2, near.length - (near.length >> 2));
      const mean = middle.reduce((sum, value) => sum + value, 0) / middle.length;
      return positive ? Math.exp(mean) : mean;
    });
  });
}

// Whether a curve goes up and down all the time: a schedule does not, and needs no trend.
function rough(series) {
  return kept(series, "rough", () => {
    let turns = 0;
    for (let i = 2; i < series.y.length; i += 1) {
      if ((series.y[i] - series.y[i - 1]) * (series.y[i - 1] - series.y[i - 2]) < 0) turns += 1;
    }
    return turns > series.y.length / 3;
  });
}

function inView(series, view) {
  let count = 0;
  for (const step of series.x) if (step >= view.low && step <= view.high) count += 1;
  return count;
}

function drawBad(context, curve, x, height, many) {
  if (!curve.main) return;
  for (const [first, last] of curve.series.bad) {
    const from = x.at(first) - 1, wide = Math.max(2, x.at(last) - x.at(first) + 2);
    context.fillStyle = color("bad");
    context.globalAlpha = 0.1;
    // Among several runs nobody could tell whose band it is.
    if (!many && (curve.series.bad.length <= MOST_BANDS || wide > 3)) context.fillRect(from, 0, wide, height);
    context.globalAlpha = 0.9;
    context.fillStyle = many ? curve.color : color("bad");
    context.fillRect(from, many ? 5 * curve.run.place : 0, wide, 4);
    context.globalAlpha = 1;
  }
}

function drawDot(context, curve, x, y, cursor) {
  const place = nearest(curve.series, cursor);
  if (place < 0) return;
  context.fillStyle = curve.color;
  dot(context, x.at(curve.series.x[place]), y.at(curve.series.y[place]), 3.5);
}

// The point nearest to a step; -1 where the curve has ended, or not begun, by then.
function nearest(series, step) {
  const reach = kept(series, "reach", () => {
    let low = Infinity, high = -Infinity;
    for (const each of series.x) { if (each < low) low = each; if (each > high) high = each; }
    for (const [first, last] of series.bad) { if (first < low) low = first; if (last > high) high = last; }
    return { low, high, gap: 2 * (high - low) / Math.max(1, series.x.length) + 1 };
  });
  if (step < reach.low - reach.gap || step > reach.high + reach.gap) return -1;
  let best = -1, distance = Infinity;
  for (let i = 0; i < series.x.length; i += 1) {
    const away = Math.abs(series.x[i] - step);
    if (away <= distance) { best = i; distance = away; }
  }
  return best;
}

function drawSelection(context, x, height, [from, to]) {
  context.fillStyle = color("accent");
  context.globalAlpha = 0.15;
  context.fillRect(x.at(from), 0, x.at(to) - x.at(from), height);
  context.globalAlpha = 1;
}

function drawLine(context, place, height, shade) {
  context.strokeStyle = shade;
  context.lineWidth = 1;
  line(context, Math.round(place) + 0.5, 0, Math.round(place) + 0.5, height);
}

function line(context, fromX, fromY, toX, toY) {
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
  context.stroke();
}

function dot(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}
