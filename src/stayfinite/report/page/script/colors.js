// Light and dark. The canvases take their colors from the style sheet, so that there is one place for them.

const theme = { chosen: null, listeners: [], printing: false };

let palette = {};

function color(name) {
  palette[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return palette[name];
}

function runColor(place) {
  return color(`run-${place % 8}`);
}

function swatchOf(shade) {
  const swatch = document.createElement("span");
  swatch.className = "swatch";
  swatch.setAttribute("aria-hidden", "true");
  swatch.style.background = shade;
  return swatch;
}

function isDark() {
  if (theme.printing) return false;
  return theme.chosen ? theme.chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  palette = {};
  const button = document.getElementById("theme");
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", isDark() ? "Light colors" : "Dark colors");
  for (const listener of theme.listeners) listener();
}

function remembered() {
  try { return localStorage.getItem("stayfinite-theme"); } catch { return null; } // a file of its own may have no storage
}

function startTheme() {
  theme.chosen = ["light", "dark"].includes(remembered()) ? remembered() : null;
  document.getElementById("theme").addEventListener("click", () => {
    theme.chosen = isDark() ? "light" : "dark";
    try { localStorage.setItem("stayfinite-theme", theme.chosen); } catch { /* chosen for this view only */ }
    applyTheme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
  addEventListener("beforeprint", () => { theme.printing = true; applyTheme(); });
  addEventListener("afterprint", () => { theme.printing = false; applyTheme(); });
  applyTheme();
}
