// What the curves are drawn over: steps, the time since a run began, or the tokens that it has seen.

const AXES = { step: "Step", time: "Time", tokens: "Tokens" };

function axesOf(runs) {
  return Object.keys(AXES).filter((name) => name === "step" || runs.some((run) => hasAxis(run, name)));
}

function hasAxis(run, name) {
  return name === "step" || Boolean(run.axes && run.axes[name]);
}

// The runs with every step at its place on this axis; those that cannot tell theirs are left out.
function placed(runs, name) {
  if (name === "step") return { runs, unit: "step" };
  const told = runs.filter((run) => hasAxis(run, name));
  const [size, unit] = name === "tokens" ? [1, "tokens"] : unitOfTime(Math.max(...told.map((run) => run.axes.time.at(-1)[1])));
  return { runs: told.map((run) => moved(run, (step) => placeAt(run.axes[name], step) / size)), unit };
}

function unitOfTime(seconds) {
  if (seconds >= 7200) return [3600, "hours"];
  return seconds >= 300 ? [60, "minutes"] : [1, "seconds"];
}

function moved(run, at) {
  const series = Object.fromEntries(Object.entries(run.series).map(([name, { x, y, bad }]) => [
    name, { x: x.map(at), y, bad: bad.map(([first, last, ...rest]) => [at(first), at(last), ...rest]) }]));
  const marks = run.marks.map((mark) => ({ ...mark, from: at(mark.from), to: at(mark.to), steps: [mark.from, mark.to] }));
  return { ...run, series, marks };
}

// Straight between two known places, and on from the last two.
function placeAt(known, step) {
  let low = 0, high = known.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (known[middle][0] <= step) low = middle; else high = middle;
  }
  const [from, begin] = known[low], [to, end] = known[high];
  return begin + (end - begin) * (step - from) / (to - from);
}

function axisButtons() {
  const names = axesOf(view.all);
  if (names.length < 2) return [];
  const missing = view.all.filter((run) => !hasAxis(run, view.by)).map((run) => run.name);
  const note = missing.length > 0 && el("span", { class: "help" }, `no ${view.by} in ${missing.slice(0, 3).join(", ")}${missing.length > 3 ? ` and ${missing.length - 3} more` : ""}`);
  const buttons = names.map((name) => {
    const button = el("button", { type: "button", class: "chip", "aria-pressed": String(view.by === name), title: `Draw over ${AXES[name].toLowerCase()}` }, AXES[name]);
    button.addEventListener("click", () => {
      view.by = name;
      view.follow = true;
      view.cursor = null;
      setCurves(view.all);
    });
    return button;
  });
  return note ? [...buttons, note] : buttons;
}
