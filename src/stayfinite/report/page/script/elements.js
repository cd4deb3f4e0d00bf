// Elements are built here and nowhere else: text goes in as text, never as markup.

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

function fill(id, ...children) {
  const node = document.getElementById(id);
  node.replaceChildren();
  add(node, children);
  node.hidden = !node.hasChildNodes();
  return node;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (Number.isInteger(value) && size < 1e7) return value.toLocaleString("en-US");
  if (size >= 1e5 || size < 1e-3) {
    const [digits, power] = value.toExponential(2).split("e");
    return `${Number(digits)}e${Number(power)}`;
  }
  return String(Number(value.toPrecision(4)));
}

function whole(value) {
  return Number.isInteger(value) ? value.toLocaleString("en-US") : String(Number(value.toPrecision(6)));
}

function percent(share) {
  return `${Math.round(share * 100)} %`;
}

// Words with code between backquotes, as the rules are written.
function prose(words) {
  return words.split("`").map((part, place) => (place % 2 ? el("code", {}, part) : part));
}

function table(heads, rows, attributes) {
  const head = el("tr", {}, heads.map((name) => el("th", { scope: "col" }, name)));
  const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": (attributes || {}).label || "table" },
    el("table", {}, el("thead", {}, head), el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map(cell))))));
  const hint = el("p", { class: "swipe", "aria-hidden": "true", hidden: true }, "Scroll sideways for more →");
  new ResizeObserver(() => { hint.hidden = box.scrollWidth <= box.clientWidth + 1; }).observe(box);
  return [hint, box];
}

function cell(content, place) {
  if (content instanceof HTMLTableCellElement) return content;
  return place === 0 ? el("th", { scope: "row" }, content) : el("td", {}, content);
}
