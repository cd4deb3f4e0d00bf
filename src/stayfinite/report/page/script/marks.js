// What happened, as a strip of ticks above the curves: one row a kind.

const KINDS = {
  veto: { word: "refused", plural: "refused", tone: "bad" },
  skip: { word: "skipped", plural: "skipped", tone: "warn" },
  rollback: { word: "rollback", plural: "rollbacks", tone: "violet" },
  bound: { word: "bounded", plural: "bounded", tone: "muted" },
  phase: { word: "new phase", plural: "new phases", tone: "violet" },
  cut: { word: "rate cut", plural: "rate cuts", tone: "warn" },
  escalate: { word: "escalation", plural: "escalations", tone: "violet" },
  stop: { word: "stop", plural: "stops", tone: "bad" },
  incident: { word: "incident", plural: "incidents", tone: "bad" },
  finding: { word: "finding", plural: "findings", tone: "warn" },
  notice: { word: "notice", plural: "notices", tone: "warn" },
  error: { word: "error", plural: "errors", tone: "bad" },
  checkpoint: { word: "checkpoint", plural: "checkpoints", tone: "good" },
  restart: { word: "restart", plural: "restarts", tone: "muted" },
};
const LINES = ["rollback", "phase", "cut", "escalate", "stop", "restart"]; // drawn through all panels: the curves turn there
const LANE = 17;

function kindsOf(runs) {
  const counts = {};
  for (const run of runs) for (const mark of run.marks) counts[mark.kind] = (counts[mark.kind] || 0) + mark.count;
  return Object.keys(KINDS).filter((kind) => counts[kind]).map((kind) => ({ kind, count: counts[kind] }));
}

// A lane a kind and a run, so that no run's marks cover another's.
function lanesOf(view) {
  return kindsOf(view.runs).filter(({ kind }) => !view.hidden.has(kind)).flatMap(({ kind }) => view.runs
    .filter((run) => !view.hidden.has(run.id) && run.marks.some((mark) => mark.kind === kind))
    .map((run, place) => ({ kind, run, first: place === 0 })));
}

function drawMarks(canvas, view) {
  const rows = lanesOf(view);
  const width = canvas.clientWidth;
  canvas.hidden = !rows.length;
  if (!width || !rows.length) return;
  const context = canvasContext(canvas, width, rows.length * LANE + 4);
  const x = scaleOf(view.low, view.high, GUTTER, width - MARGIN, false);
  context.textBaseline = "middle";
  rows.forEach(({ kind, run, first }, row) => {
    const middle = row * LANE + LANE / 2 + 2;
    context.fillStyle = color("muted");
    context.textAlign = "right";
    if (first) context.fillText(KINDS[kind].word, GUTTER - 8, middle);
    context.strokeStyle = color("grid");
    context.lineWidth = 1;
    line(context, GUTTER, Math.round(middle) + 0.5, width - MARGIN, Math.round(middle) + 0.5);
    for (const mark of run.marks) if (mark.kind === kind) drawMark(context, mark, x, middle, run, view);
  });
  if (view.cursor !== null) drawLine(context, x.at(view.cursor), rows.length * LANE + 4, color("muted"));
}

function drawMark(context, mark, x, middle, run, view) {
  if (mark.to < view.low || mark.from > view.high) return;
  context.fillStyle = view.runs.length > 1 ? runColor(run.place) : color(KINDS[mark.kind].tone);
  const from = x.at(Math.max(mark.from, view.low)), to = x.at(Math.min(mark.to, view.high));
  if (mark.count > 1) {
    context.fillRect(from - 1, middle - 5, Math.max(2, to - from + 2), 10);
  } else if (mark.kind === "incident" || mark.kind === "stop") {
    context.beginPath();
    context.moveTo(from, middle - 6); context.lineTo(from + 6, middle); context.lineTo(from, middle + 6); context.lineTo(from - 6, middle);
    context.fill();
  } else if (mark.kind === "checkpoint") {
    dot(context, from, middle, 3);
  } else {
    context.fillRect(from - 1, middle - 5.5, 2, 11);
  }
}

// The marks near a step: within a few pixels of it.
function marksNear(run, step, reach) {
  return run.marks.filter((mark) => mark.from - reach <= step && step <= mark.to + reach);
}
