// The heat map: a row a layer, a column a look; where it starts is where the color first turns.

const heat = { run: null, field: "norm", runs: [] };
const STOPS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];
const unpacked = new WeakMap();
const NONE = 0, ZERO = 1, LEAST = 2, MOST = 254, BAD = 255;

function setHeat(runs) {
  heat.runs = runs.filter((run) => run.layers);
  if (!heat.runs.length) { fill("layers"); return; }
  if (!heat.runs.some((run) => run.id === heat.run)) heat.run = heat.runs[0].id;
  const layers = current().layers;
  if (!layers.fields[heat.field]) heat.field = Object.keys(layers.fields)[0];
  heat.canvas = el("canvas", { class: "heat", "aria-hidden": "true" });
  heat.tip = el("div", { class: "tip", hidden: true });
  const chosen = layers.fields[heat.field];
  const what = layers.grouped ? `${layers.parameters} parameters in ${layers.names.length} groups, the largest of each` : `${layers.names.length} parameters`;
  fill("layers",
    el("div", { class: "bar" }, el("h2", { id: "layers-title" }, "Layers over time"), el("div", { class: "legend" },
      heat.runs.length > 1 && heat.runs.map((run) => choice(run.name, run.id === heat.run, () => { heat.run = run.id; })),
      Object.entries(layers.fields).map(([key, field]) => choice(field.title, key === heat.field, () => { heat.field = key; })))),
    el("div", { class: "plot", role: "img", "aria-label": `${chosen.title} of ${what} from step ${layers.first} to ${layers.steps[layers.steps.length - 1]}; the table below names those that stand out` }, heat.canvas, heat.tip),
    heatLegend(chosen), el("p", { class: "help" }, `${what}, ${layers.steps.length === 1 ? "1 look" : `${whole(layers.steps.length)} looks`}.`), worstTable(layers));
  heat.canvas.addEventListener("pointermove", hoverHeat);
  heat.canvas.addEventListener("pointerleave", () => { heat.tip.hidden = true; });
  drawHeat();
}

function current() {
  return heat.runs.find((run) => run.id === heat.run);
}

function choice(words, pressed, choose) {
  return el("button", { type: "button", class: "chip", "aria-pressed": String(pressed), onclick: () => { choose(); setHeat(heat.runs); } }, words);
}

function shadeOf(byte) {
  if (byte === BAD) return color("broken");
  if (byte === NONE) return color("nothing");
  if (byte === ZERO) return color("zero");
  const place = (byte - LEAST) / (MOST - LEAST) * (STOPS.length - 1);
  const low = Math.floor(place), share = place - low, from = STOPS[low], to = STOPS[Math.min(low + 1, STOPS.length - 1)];
  return `rgb(${from.map((part, i) => Math.round(part + (to[i] - part) * share)).join(",")})`;
}

function cellsOf(field) {
  if (!unpacked.has(field)) unpacked.set(field, Uint8Array.from(atob(field.cells), (letter) => letter.charCodeAt(0)));
  return unpacked.get(field);
}

function heatShape() {
  const { names, steps } = current().layers;
  const wide = heat.canvas.clientWidth;
  const tall = Math.max(7, Math.min(15, Math.floor(720 / names.length)));
  const context = heat.canvas.getContext("2d");
  context.font = FONT;
  const gutter = 16 + Math.min(284, wide * 0.32, Math.max(...names.map((name) => context.measureText(name).width)));
  return { names, steps, wide, tall, gutter, cell: (wide - gutter - MARGIN) / steps.length };
}

function drawHeat() {
  if (!heat.runs.length || !heat.canvas.clientWidth) return;
  const { names, steps, wide, tall, gutter, cell } = heatShape();
  const bytes = cellsOf(current().layers.fields[heat.field]);
  const context = canvasContext(heat.canvas, wide, names.length * tall + 22);
  for (let row = 0; row < names.length; row += 1) {
    for (let column = 0; column < steps.length; column += 1) {
      context.fillStyle = shadeOf(bytes[row * steps.length + column]);
      const from = gutter + column * cell;
      context.fillRect(from, row * tall, Math.max(1, cell + (cell > 4 ? -0.5 : 0.4)), tall - (tall > 6 ? 0.5 : 0));
    }
  }
  context.fillStyle = color("muted");
  context.textBaseline = "middle";
  context.textAlign = "right";
  const named = Math.ceil(12 / tall); // where the rows are low, every second one has its name
  names.forEach((name, row) => { if (row % named === 0) context.fillText(fitting(context, name, gutter - 12), gutter - 8, row * tall + tall / 2); });
  context.textAlign = "center";
  const every = Math.max(1, Math.ceil(steps.length / Math.max(2, Math.floor(wide / 110))));
  for (let column = 0; column < steps.length; column += every) context.fillText(whole(steps[column]), Math.max(gutter + 14, gutter + (column + 0.5) * cell), names.length * tall + 12);
}

// The end of a name says more than its beginning.
function fitting(context, name, room) {
  if (context.measureText(name).width <= room) return name;
  let from = 0, to = name.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (context.measureText(`…${name.slice(middle)}`).width <= room) to = middle; else from = middle + 1;
  }
  return `…${name.slice(from)}`;
}

function hoverHeat(event) {
  const { names, steps, tall, gutter, cell } = heatShape();
  const column = Math.floor((event.offsetX - gutter) / cell), row = Math.floor(event.offsetY / tall);
  if (column < 0 || column >= steps.length || row < 0 || row >= names.length) { heat.tip.hidden = true; return; }
  const field = current().layers.fields[heat.field];
  heat.tip.replaceChildren(el("p", { class: "tip-step" }, names[row]), el("p", {}, `step ${whole(steps[column])}: ${field.title} `, el("b", {}, valueOf(cellsOf(field)[row * steps.length + column], field))));
  heat.tip.hidden = false;
  const left = event.offsetX + 16 + heat.tip.offsetWidth > heat.canvas.clientWidth ? event.offsetX - heat.tip.offsetWidth - 16 : event.offsetX + 16;
  heat.tip.style.left = `${Math.max(0, left)}px`;
  heat.tip.style.top = `${event.offsetY + 8}px`;
}

function valueOf(byte, field) {
  if (byte === BAD) return "NaN or inf";
  if (byte === NONE) return "nothing to measure";
  if (byte === ZERO) return "0";
  const share = (byte - LEAST) / (MOST - LEAST);
  if (field.linear) return percent(share);
  if (byte === MOST && field.beyond) return `${number(field.high)} or more`;
  return `about ${number(Number((field.low * (field.high / field.low) ** share).toPrecision(2)))}`;
}

function heatLegend(field) {
  const ramp = el("canvas", { class: "ramp", width: "120", height: "10", "aria-hidden": "true" });
  const context = ramp.getContext("2d");
  for (let i = 0; i < 120; i += 1) { context.fillStyle = shadeOf(LEAST + Math.round(i / 119 * (MOST - LEAST))); context.fillRect(i, 0, 1, 10); }
  const key = (name, words) => { const box = el("span", { class: `box ${name}`, "aria-hidden": "true" }); return el("span", { class: "key" }, box, words); };
  return el("p", { class: "heat-legend" }, field.linear ? "0 %" : number(field.low), ramp, field.linear ? "100 %" : `${number(field.high)}${field.beyond ? " and more" : ""}`, key("bad", "NaN or inf"), key("zero", "exactly 0"), key("nothing", "nothing to measure"));
}

function worstTable(layers) {
  const rows = layers.worst.map((row) => [
    el("code", {}, row.name),
    row.broken ? `${row.broken}, first at step ${whole(row.first_broken)}` : "–",
    row.highest === null ? "–" : `${number(row.highest)} at step ${whole(row.at)}`,
    row.above === null ? "–" : `${number(row.above)} ×`,
    row.ratio === null ? "–" : number(row.ratio),
    row.zeros === null ? "–" : percent(row.zeros),
  ]);
  return [el("h3", {}, "Layers that stand out"), table(["parameter", "NaN or inf samples", "highest gradient norm", "above its median", "largest update ratio", "zeros"], rows, { label: "Layers that stand out" })];
}
