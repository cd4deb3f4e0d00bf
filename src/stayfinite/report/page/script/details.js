// What the run was made of, and the curves as tables for those who would rather read them.

const MOST_ROWS = 250;

function setDetails(runs) {
  const groups = runs.filter((run) => run.details.length).map((run) => [
    runs.length > 1 && el("h3", {}, run.name),
    el("div", { class: "tables" }, run.details.map((group) => el("details", { open: group.rows.length <= 14 }, el("summary", {}, group.title),
      el("table", { class: "plain" }, el("tbody", {}, group.rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value))))))))]);
  if (!groups.length) { fill("details"); return; }
  fill("details", el("h2", { id: "details-title" }, "Details"), groups);
}

// What was set differently, before anything that came of it.
const SETTINGS = ["Configuration", "Model", "Optimizer", "Guard"];
const MOST_DIFFERENCES = 40;

function setDifferences(runs) {
  const told = runs.map((run) => new Map(run.details.filter((group) => SETTINGS.includes(group.title))
    .flatMap((group) => group.rows.map(([name, value]) => [group.title === "Configuration" ? name : `${group.title.toLowerCase()} ${name}`, value]))));
  const known = runs.filter((_, place) => told[place].size), values = told.filter((each) => each.size);
  if (known.length < 2) { fill("differences"); return; }
  const all = [...new Set(values.flatMap((each) => [...each.keys()]))];
  const shared = all.filter((name) => values.every((each) => each.has(name)));
  // Where the runs wrote down the same kinds of settings, one that only some of them have differs as well.
  const alike = shared.length * 2 >= all.length;
  const names = all.filter((name) => new Set(values.filter((each) => alike || each.has(name)).map((each) => each.get(name))).size > 1);
  const rows = names.slice(0, MOST_DIFFERENCES).map((name) => [name, ...values.map((each) => each.get(name) ?? "–")]);
  const heads = ["setting", ...known.map((run) => [swatchOf(runColor(run.place)), run.name])];
  const more = names.length > MOST_DIFFERENCES && el("p", { class: "help" }, `${names.length - MOST_DIFFERENCES} more differ.`);
  fill("differences", el("h2", { id: "differences-title" }, "What differs"),
    rows.length ? table(heads, rows, { label: "Settings that differ" }) : el("p", { class: "help" }, "No recorded setting differs."), more);
}

function curveTables() {
  return el("details", { class: "more", ontoggle: (event) => { if (event.currentTarget.open) fillTables(event.currentTarget); } }, el("summary", {}, "The curves as tables"));
}

function fillTables(place) {
  place.replaceChildren(place.firstChild);
  add(place, view.all.map((run) => [el("h3", {}, run.name), curveTable(run), marksTable(run)]));
}

function curveTable(run) {
  const names = Object.keys(run.series);
  const steps = [...new Set(names.flatMap((name) => run.series[name].x))].sort((a, b) => a - b);
  const every = Math.max(1, Math.ceil(steps.length / MOST_ROWS));
  const values = names.map((name) => new Map(run.series[name].x.map((step, i) => [step, run.series[name].y[i]])));
  const rows = steps.filter((_, i) => i % every === 0 || i === steps.length - 1)
    .map((step) => [whole(step), ...names.map((name, i) => (values[i].has(step) ? number(values[i].get(step)) : valueNear(run.series[name], step)))]);
  return table(["step", ...names.map((name) => name.replaceAll("_", " "))], rows, { label: `Curves of ${run.name}` });
}

function marksTable(run) {
  if (!run.marks.length) return null;
  const rows = run.marks.slice(0, MOST_ROWS).map((mark) => [mark.count > 1 ? `${whole(mark.from)} to ${whole(mark.to)}` : whole(mark.from), KINDS[mark.kind] ? KINDS[mark.kind].word : mark.kind, whole(mark.count), mark.text]);
  return table(["step", "event", "count", "message"], rows, { label: `Events of ${run.name}` });
}
