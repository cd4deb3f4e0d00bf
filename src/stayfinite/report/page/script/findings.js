// The verdict, the findings as cards, and the text of the rules that they link to.

const WORDS = { healthy: "Healthy", warning: "Warning", sick: "Sick", critical: "Critical", unknown: "Unknown" };
const TONES = { healthy: "good", warning: "warn", sick: "bad", critical: "bad", unknown: "warn" };

function setVerdict(runs) {
  fill("verdict", runs.map((run) => {
    const word = run.health ? run.health.word : run.verdict;
    const swatch = runs.length > 1 && swatchOf(runColor(run.place));
    return el("div", { class: `verdict ${runs.length > 1 ? "compared" : ""}` },
      el("p", { class: "which" }, el("span", { class: `pill ${TONES[word] || "warn"}` }, WORDS[word] || word), swatch, runs.length > 1 && el("b", {}, run.name), el("span", { class: "source" }, run.source)),
      el("p", { class: "sentence" }, run.sentence),
      run.note && el("p", { class: "help" }, run.note),
      run.health && run.health.reason && el("p", { class: "help" }, run.health.reason),
      el("dl", { class: "figures" }, run.figures.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
  }));
}

function setFindings(runs, rules) {
  const cards = runs.flatMap((run) => run.findings.map((finding) => card(finding, run, runs.length > 1, rules)));
  if (!cards.length) { fill("findings"); return; }
  const unlikely = runs.flatMap((run) => run.findings).map((finding) => finding.confidence < 0.3);
  const likely = cards.filter((_, place) => !unlikely[place]), rest = cards.filter((_, place) => unlikely[place]);
  const first = likely.length ? likely : rest.splice(0, 1);
  fill("findings", el("h2", { id: "findings-title" }, "Findings"), el("div", { class: "cards" }, first),
    rest.length > 0 && el("details", { class: "more" }, el("summary", {}, `${rest.length} less likely`), el("div", { class: "cards" }, rest)));
}

function card(finding, run, many, rules) {
  const tone = { error: "bad", warning: "warn" }[finding.severity] || "muted";
  const link = rules[finding.code] && el("a", { href: `#rule-${finding.code}`, onclick: openRule }, "What this means");
  return el("article", { class: `card ${tone}` },
    el("header", {}, el("h3", {}, finding.cause, el("span", { class: "code" }, finding.code)), many && el("span", { class: "help" }, run.name),
      finding.verified && el("span", { class: "pill good" }, "proved", finding.by && ` by ${finding.by}`)),
    el("p", { class: "title" }, finding.title),
    confidence(finding.confidence),
    finding.where && el("p", { class: "where" }, `seen at ${finding.where}`),
    el("ul", {}, finding.evidence.map((line) => el("li", {}, line))),
    finding.fix && el("p", { class: "fix" }, el("b", {}, "Fix "), ...prose(finding.fix)),
    link && el("p", {}, link));
}

function confidence(share) {
  const meter = el("span", { class: "meter", "aria-hidden": "true" }, el("span"));
  meter.firstChild.style.width = `${Math.round(Math.min(1, Math.max(0, share)) * 100)}%`;
  return el("p", { class: "confidence" }, meter, `${percent(share)} confidence`);
}

function openRule(event) {
  const page = document.getElementById(event.currentTarget.getAttribute("href").slice(1));
  if (page) page.open = true;
}

function setRules(rules) {
  const pages = Object.values(rules);
  if (!pages.length) { fill("rules"); return; }
  fill("rules", el("h2", { id: "rules-title" }, "What the findings mean"), pages.map((page) => el("details", { id: `rule-${page.code}`, class: "rule" },
    el("summary", {}, el("b", {}, page.slug), el("span", { class: "code" }, page.code), " ", page.title),
    Object.entries(page.sections).map(([name, words]) => [el("h3", {}, name), passage(words)]))));
}

// Paragraphs, and code that stands indented or between fences.
function passage(words) {
  return words.split(/\n\s*\n/).map((part) => {
    if (/^(```|    )/.test(part)) return el("pre", {}, part.replace(/^```\w*\n?|\n?```$/g, "").replace(/^ {4}/gm, ""));
    if (/^- /.test(part)) return el("ul", {}, part.split(/\n(?=- )/).map((item) => el("li", {}, ...prose(item.slice(2)))));
    return el("p", {}, ...prose(part));
  });
}
