// The whole component: tabs, the view of the one that is open, and what all views share. mount() is what the page, the
// notebook's widget and a saved file call, each with its own way to ask.

import { fill, h } from "./dom.js";
import { State } from "./state.js";
import { contest } from "./tabs/contest.js";
import { dynamics } from "./tabs/dynamics.js";
import { heads } from "./tabs/heads.js";
import { maps } from "./tabs/maps.js";
import { own } from "./tabs/own.js";
import { spectra } from "./tabs/spectra.js";
import { study } from "./tabs/study.js";

export const TABS = [contest, dynamics, spectra, maps, heads, study, own];

export function mount(root, { ask, table, own: mine = null, tabs = TABS, address = true, initial = {}, extra = {} }) {
  const state = new State(tabs, { address, initial });
  const links = tabs.map((tab) =>
    h("a", { href: `?tab=${tab.id}`, id: `tab-${tab.id}`, role: "tab", onclick: (event) => follow(event, tab.id) }, tab.title),
  );
  const list = h("nav", { className: "tabs", role: "tablist", "aria-label": "views" }, links);
  const main = h("main", { id: "view", tabIndex: -1 });
  fill(root, h("header", { className: "top" }, h("h1", {}, "needlepoint"), tabs.length > 1 ? list : ""), main);
  const context = { ask, table, own: mine ?? { task: [], model: [], activation: [], folders: 0 }, state, open: (id, values) => state.open(id, values), extra };
  let view = null;

  function follow(event, id) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    state.open(id);
  }

  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (tabs.indexOf(state.tab) + step + tabs.length) % tabs.length;
    state.open(tabs[next].id);
    links[next].focus();
  });

  function show(other) {
    if (other || !view) {
      if (view) view.gone = true; // what arrives late finds that nobody looks any more
      view?.leave?.();
      links.forEach((link, i) => {
        link.setAttribute("aria-selected", tabs[i] === state.tab);
        link.tabIndex = tabs[i] === state.tab ? 0 : -1;
      });
      const lead = h("p", { className: "lead" }, state.tab.question);
      const body = h("div", {});
      fill(main, lead, body);
      view = state.tab.mount(body, context);
      if (address) document.title = `${state.tab.title} · needlepoint`;
    }
    view.update();
  }

  state.listeners.push(show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.update());
  show(true);
  return { state, owned: (found) => { context.own = found; show(true); } };
}
