// The table of best penalties that ships with the package: curves at once, before the solver has answered. table.py
// says the same in Python; a test holds the two against each other.

const COORDINATE = { snr: Math.log, alpha: Math.log, noise: (x) => x };

export class Table {
  constructor(document) {
    this.document = document;
    this.axes = document ? Object.fromEntries(Object.entries(document.axes).map(([name, values]) => [name, values.map(COORDINATE[name])])) : null;
  }

  static async load(url) {
    try {
      const response = await fetch(url);
      return new Table(response.ok ? await response.json() : null);
    } catch {
      return new Table(null);
    }
  }

  get alphas() {
    return this.document?.axes.alpha ?? [];
  }

  // A point {risk, error, lam, trusted}, or null outside the box and where the table has a gap.
  at({ task, tokens, snr, noise }, model, alpha) {
    const block = this.document?.blocks[`${task}/${tokens}/${model}`];
    if (!block) return null;
    const at = { snr: place(this.axes.snr, Math.log(snr)), noise: place(this.axes.noise, noise) };
    if (!at.snr || !at.noise) return null;
    const count = this.axes.alpha.length;
    let sums = null;
    let trusted = true;
    for (const [up, more] of [[0, 0], [0, 1], [1, 0], [1, 1]]) {
      const weight = (up ? at.snr.share : 1 - at.snr.share) * (more ? at.noise.share : 1 - at.noise.share);
      if (weight === 0) continue;
      const first = ((at.snr.low + up) * this.axes.noise.length + at.noise.low + more) * count;
      const found = along(this.axes.alpha, block.slice(first, first + count), Math.log(alpha));
      if (!found) return null;
      sums = found.columns.map((x, i) => (sums?.[i] ?? 0) + weight * x);
      trusted &&= found.trusted;
    }
    const [excess, ...lam] = sums.map(Math.exp);
    const risk = excess + noise * noise;
    return { risk, error: risk * (this.document.error.ninetieth ?? 0.05), lam: lam.length ? lam : null, trusted, source: "table" };
  }
}

function place(xs, x) {
  const slack = 1e-9;
  if (!(x >= xs[0] - slack && x <= xs.at(-1) + slack)) return null;
  let low = 0;
  while (low < xs.length - 2 && x > xs[low + 1]) low += 1;
  const share = Math.min(1, Math.max(0, (x - xs[low]) / (xs[low + 1] - xs[low])));
  return { low, share: share < slack ? 0 : share > 1 - slack ? 1 : share };
}

// The columns at x of rows [log excess risk, log penalties..., trusted], by a cubic with the slopes of the neighbours.
function along(xs, rows, x) {
  const found = place(xs, x);
  if (!found) return null;
  const { low, share: t } = found;
  if (!rows[low] || !rows[low + 1]) return null;
  const columns = rows[low].slice(0, -1).map((here, c) => {
    const there = rows[low + 1][c];
    const width = xs[low + 1] - xs[low];
    const slope = (there - here) / width;
    const before = rows[low - 1];
    const after = rows[low + 2];
    const left = before ? (there - before[c]) / (xs[low + 1] - xs[low - 1]) : slope;
    const right = after ? (after[c] - here) / (xs[low + 2] - xs[low]) : slope;
    const a = left * width - (there - here);
    const b = -right * width + (there - here);
    return (1 - t) * here + t * there + t * (1 - t) * (a * (1 - t) + b * t);
  });
  const used = t === 0 ? [rows[low]] : t === 1 ? [rows[low + 1]] : [rows[low], rows[low + 1]];
  return { columns, trusted: used.every((row) => row.at(-1) === 1) };
}
