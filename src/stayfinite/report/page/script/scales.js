// From numbers to pixels and to round numbers on an axis.

function scaleOf(low, high, from, to, log) {
  const forward = log ? Math.log10 : (value) => value;
  const begin = forward(low), end = forward(high);
  const span = end - begin || 1;
  return {
    low, high, log,
    at: (value) => from + ((log && value <= 0 ? begin : forward(value)) - begin) / span * (to - from),
    value: (pixel) => {
      const place = begin + (pixel - from) / (to - from) * span;
      return log ? 10 ** place : place;
    },
  };
}

function niceStep(span, count) {
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const share = rough / power;
  return (share > 7 ? 10 : share > 3 ? 5 : share > 1.5 ? 2 : 1) * power;
}

// Steps are whole: an axis of `whole` numbers has no tick between two of them, unless it shows next to none.
function ticks(scale, count, whole) {
  if (!(scale.high > scale.low)) return [scale.low];
  if (scale.log) {
    const first = Math.ceil(Math.log10(scale.low) - 1e-9), last = Math.floor(Math.log10(scale.high) + 1e-9);
    const decades = last - first + 1;
    if (decades >= 2) {
      const stride = Math.ceil(decades / count);
      return range(first, last, stride).map((power) => 10 ** power);
    }
    const found = [];
    for (let power = first - 1; power <= last; power += 1) {
      for (const digit of [1, 2, 5]) {
        const value = digit * 10 ** power;
        if (value >= scale.low && value <= scale.high) found.push(value);
      }
    }
    if (found.length >= 2) return found;
  }
  const span = scale.high - scale.low, step = Math.max(whole && span >= 2 ? 1 : 0, niceStep(span, count));
  return range(Math.ceil(scale.low / step), Math.floor(scale.high / step + 1e-9), 1).map((place) => place * step);
}

function range(first, last, stride) {
  const found = [];
  for (let value = first; value <= last && found.length < 200; value += stride) found.push(value);
  return found;
}

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';

function canvasContext(canvas, width, height) {
  const dense = Math.min(3, devicePixelRatio || 1);
  canvas.width = Math.round(width * dense);
  canvas.height = Math.round(height * dense);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(dense, 0, 0, dense, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = FONT;
  return context;
}
