// The page as a whole. `update` takes a whole data object, or the changes to the one that is shown.

let shown = { runs: [], rules: {} };

function update(change) {
  if (change.runs) shown = change;
  for (const patch of change.patches || []) apply(patch);
  if (change.rules) shown.rules = change.rules;
  shown.runs.forEach((run, place) => { run.place = place; });
  draw();
}

function apply(patch) {
  const run = shown.runs.find((each) => each.id === patch.id);
  if (!run) return;
  const { series = {}, marks = [] } = patch.append || {};
  for (const [name, more] of Object.entries(series)) {
    const kept = Object.hasOwn(run.series, name) ? run.series[name] : (run.series[name] = { x: [], y: [], bad: [] });
    // A run that was taken up again takes these steps anew.
    const again = more.x.length ? kept.x.findIndex((step) => step >= more.x[0]) : -1;
    if (again >= 0) { kept.x.length = kept.y.length = again; delete kept.memory; }
    kept.x.push(...more.x);
    kept.y.push(...more.y);
    kept.bad.push(...(more.bad || []));
  }
  run.marks.push(...marks);
  Object.assign(run, patch.set || {});
}

// A section is built anew only if what it shows has changed: what somebody has opened or is reading stays as it is.
const built = {};

function anew(section, content, build) {
  const now = JSON.stringify(content);
  if (built[section] === now) return;
  built[section] = now;
  build();
}

function draw() {
  const { runs } = shown, rules = shown.rules || {};
  const each = (...names) => runs.map((run) => [run.id, run.name, ...names.map((name) => run[name])]);
  document.getElementById("title").textContent = shown.title || "";
  anew("verdict", each("verdict", "health", "sentence", "note", "figures"), () => setVerdict(runs));
  anew("differences", each("details", "place"), () => setDifferences(runs));
  anew("findings", [each("findings"), Object.keys(rules)], () => setFindings(runs, rules));
  setCurves(runs);
  anew("layers", each("layers"), () => setHeat(runs));
  anew("incidents", each("incidents"), () => setIncidents(runs));
  anew("details", each("details"), () => setDetails(runs));
  anew("rules", rules, () => setRules(rules));
  document.getElementById("foot").textContent = `${shown.made ? `Made ${shown.made.replace("T", " ").replace("+00:00", " UTC")} by ` : ""}stayfinite ${shown.stayfinite || ""}. Self-contained: nothing is loaded from elsewhere.`;
}

function redraw() {
  buildLegendIfShown();
  setVerdict(shown.runs);
  drawCurves();
  setHeat(shown.runs);
}

function buildLegendIfShown() {
  if (document.getElementById("legend")) buildLegend();
}

// The page is connected; a run is live only while it takes steps.
function follow(address) {
  const badge = document.getElementById("live");
  const source = new EventSource(address);
  const say = (words, tone) => { badge.hidden = false; badge.className = `live ${tone}`; badge.textContent = words; };
  const tell = () => {
    const still = shown.runs.map((run) => run.standing).filter(Boolean);
    if (still.length < shown.runs.length || !still.length) say("live", "good");
    else say(still.length === 1 ? still[0] : "no run is live", "warn");
  };
  source.addEventListener("open", tell);
  source.addEventListener("error", () => say("waiting for the server", "warn"));
  source.addEventListener("message", (event) => { update(JSON.parse(event.data)); tell(); });
}

function start() {
  startTheme();
  update(JSON.parse(document.getElementById("data").textContent));
  theme.listeners.push(redraw);
  addEventListener("resize", () => requestAnimationFrame(() => { drawCurves(); drawHeat(); }));
  const address = JSON.parse(document.getElementById("stream").textContent);
  if (address) follow(address);
  globalThis.stayfinite = Object.freeze({ update });
  document.documentElement.dataset.ready = "yes";
}

start();
