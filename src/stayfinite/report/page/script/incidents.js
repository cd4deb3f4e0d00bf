// An incident: where it began, how it got to the loss, what changed it, who is guilty.

const OUTCOMES = { finite: ["✓", "finite", "good"], bad: ["✗", "NaN or inf", "bad"], error: ["–", "could not run", "warn"] };

function setIncidents(runs) {
  const shown = runs.flatMap((run) => run.incidents.map((incident) => incidentOf(incident, run, runs.length > 1)));
  if (!shown.length) { fill("incidents"); return; }
  fill("incidents", el("h2", { id: "incidents-title" }, "Incidents"), shown);
}

function incidentOf(incident, run, many) {
  const { fix } = incident;
  return el("article", { class: "incident" },
    el("header", {}, el("h3", {}, incident.cause || (incident.explained ? "normal when re-run" : "not explained yet")),
      incident.confidence !== null && incident.cause && el("span", { class: "code" }, percent(incident.confidence)),
      fix.verified && el("span", { class: "pill good" }, "fix proved"),
      el("span", { class: "help" }, many && `${run.name}, `, incident.step !== null && `step ${whole(incident.step)}, `, `incidents/${incident.name}`)),
    el("p", {}, incident.verdict || incident.reason),
    incident.origin && originOf(incident),
    incident.worlds.length > 0 && [el("h4", {}, "The same step with one thing changed"), worldsTable(incident)],
    rowsOf(incident),
    fix.text && el("p", { class: "fix" }, el("b", {}, "Fix "), ...prose(fix.text), fix.by && el("span", { class: "help" }, fix.verified ? ` proved by ${fix.by}` : "")),
    el("p", { class: "help" }, [incident.trigger, incident.batch && `batch ${incident.batch}`, incident.device, incident.seconds !== null && `explained in ${number(incident.seconds)} s`].filter(Boolean).join(" · ")),
    !incident.explained && el("p", { class: "help" }, "Explain it with ", el("code", {}, `stayfinite replay ${run.source}/incidents/${incident.name} --build MODULE:FUNCTION`)));
}

function originOf({ origin, chain }) {
  const reader = origin.leaf && origin.operator ? `, read by ${origin.operator}` : "";
  const where = el("li", { class: "origin" }, el("b", {}, origin.leaf || origin.operator), reader, origin.forward && ` (gradient of ${origin.forward})`, ` in ${origin.module || "the loss"}`,
    el("span", { class: "help" }, [origin.phase, origin.dtype, origin.place].filter(Boolean).join(", ")),
    origin.inputs.length > 0 && el("span", { class: "help" }, `inputs: ${origin.inputs.join("; ")}`));
  return [el("h4", {}, "From the origin to the loss"), el("ol", { class: "chain" }, where, chain.map((link) => el("li", { class: link === "..." ? "gap" : null }, link === "..." ? "…" : link)))];
}

function worldsTable(incident) {
  const rows = incident.worlds.map((world) => {
    const [sign, words, tone] = OUTCOMES[world.outcome];
    return [
      el("code", {}, world.name),
      el("td", { class: `outcome ${tone}` }, el("span", { "aria-hidden": "true" }, sign), ` ${words}`),
      world.error || world.change,
      el("td", { class: "amount" }, number(world.loss)), el("td", { class: "amount" }, number(world.grad_norm)), el("td", { class: "amount" }, world.seconds === null ? "–" : `${world.seconds.toFixed(2)} s`),
    ];
  });
  return table(["world", "outcome", "change", "loss", "gradient norm", "time"], rows, { label: "Worlds of the incident" });
}

// Answers that were sampled: what they were given and what came of it, side by side.
const ANSWER = /^([^\n]*)\nprompt: ([\s\S]*?)\nanswer: ([\s\S]*)$/;

function answersOf(incident) {
  const rows = incident.decoded.map((row) => {
    const [, figures, prompt, answer] = ANSWER.exec(row.text);
    return [String(row.row), row.guilty ? el("td", { class: "outcome bad" }, "bad") : "",
      el("td", { class: "amount" }, figures.split(", ").map((figure) => el("div", {}, figure))),
      el("td", { class: "decoded" }, prompt), el("td", { class: "decoded" }, answer)];
  });
  return [el("h4", {}, "Answers of the batch"), table(["row", "", "figures", "prompt", "answer"], rows, { label: "Answers of the batch" })];
}

function rowsOf(incident) {
  if (incident.decoded.length && incident.decoded.every((row) => ANSWER.test(row.text))) return answersOf(incident);
  if (incident.decoded.length) {
    return [el("h4", {}, "Rows of the batch"), table(["row", "", "text"], incident.decoded.map((row) => [
      String(row.row), row.guilty ? el("td", { class: "outcome bad" }, "bad") : "", el("td", { class: "decoded" }, row.text)]), { label: "Rows of the batch" })];
  }
  return incident.rows.length > 0 && el("p", {}, el("b", {}, "Bad rows of the batch: "), incident.rows.join(", "));
}
