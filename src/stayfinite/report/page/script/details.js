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

function curveTables() {
  return el("details", { class: "more", ontoggle: (event) => { if (event.currentTarget.open) fillTables(event.currentTarget); } }, el("summary", {}, "The curves as tables"));
}

function fillTables(place) {
  place.replaceChildren(place.firstChild);
  add(place, view.runs.map((run) => [el("h3", {}, run.name), curveTable(run), marksTable(run)]));
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
  return table(["step", "event", "count", "what was said"], rows, { label: `Events of ${run.name}` });
}
