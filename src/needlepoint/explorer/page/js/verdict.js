// One sentence: which model is best. A model is better if the margin exceeds the sum of both errors, which are bounds.

import { digits, h, within } from "./dom.js";

export function ranked(points) {
  return [...points].filter((p) => p.point?.risk !== null && p.point?.risk !== undefined).sort((a, b) => a.point.risk - b.point.risk);
}

export function verdict(points, bayes) {
  const order = ranked(points);
  if (order.length === 0) return { best: null, parts: ["Nothing is known here yet."] };
  const [best, ...others] = order;
  const even = others.filter((o) => o.point.risk - best.point.risk <= best.point.error + o.point.error);
  const rest = others.find((o) => !even.includes(o));
  const parts = [];
  if (even.length > 0) parts.push(h("b", {}, [best, ...even].map((o) => o.name).join(" and ")), " cannot be told apart: ");
  else parts.push(h("b", {}, best.name), " is best: ");
  parts.push(shown(best.point));
  if (rest) parts.push(`, ${digits(rest.point.risk - best.point.risk, 2)} below ${rest.name}`);
  if (bayes?.risk) parts.push(`; no method can be below ${within(bayes.risk, bayes.error)} (Bayes)`);
  const doubted = order.filter((o) => !o.point.trusted);
  parts.push(doubted.length ? `; not to be trusted: ${doubted.map((o) => o.name).join(", ")}.` : "; trusted.");
  return { best, parts };
}

export function shown(point) {
  const lam = point.lam?.map((x) => digits(x, 2)).join(" / ");
  return `${lam ? `penalty ${lam}, ` : ""}risk ${within(point.risk, point.error)}`;
}

// What a live answer says, as the table says it.
export function live(event) {
  return { risk: event.risk?.[0] ?? null, error: event.risk?.[1] ?? null, lam: event.lam, trusted: event.trusted, status: event.status, notes: event.notes, source: "live" };
}
