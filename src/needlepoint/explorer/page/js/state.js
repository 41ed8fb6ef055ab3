// The state of a view is its address: ?tab=...&snr=2. A change while a slider moves replaces the address, one that is
// kept is a step that the browser's back button takes back.

export class State {
  constructor(tabs, { address = true, initial = {} } = {}) {
    this.tabs = tabs;
    this.address = address;
    this.listeners = [];
    this.values = {};
    this.read(address ? new URLSearchParams(location.search) : new URLSearchParams(initial));
    if (address) addEventListener("popstate", () => this.back());
  }

  read(query) {
    this.tab = this.tabs.find((tab) => tab.id === query.get("tab")) ?? this.tabs[0];
    this.values = {};
    for (const [name, field] of Object.entries(this.tab.fields)) {
      this.values[name] = checked(field, query.get(name));
    }
  }

  back() {
    const before = this.tab;
    this.read(new URLSearchParams(location.search));
    this.tell(before !== this.tab);
  }

  get query() {
    const query = new URLSearchParams();
    query.set("tab", this.tab.id);
    for (const [name, value] of Object.entries(this.values)) {
      if (value !== this.tab.fields[name].default) query.set(name, value);
    }
    return `?${query}`;
  }

  set(changes, kept = true) {
    const before = this.query;
    for (const [name, value] of Object.entries(changes)) this.values[name] = checked(this.tab.fields[name], value);
    this.note(kept, before);
    this.tell(false);
  }

  open(id, values = {}) {
    const before = this.query;
    this.tab = this.tabs.find((tab) => tab.id === id) ?? this.tabs[0];
    this.values = {};
    for (const [name, field] of Object.entries(this.tab.fields)) this.values[name] = checked(field, values[name] ?? null);
    this.note(true, before);
    this.tell(true);
  }

  // While a slider moves, the entry of the history is replaced; the first move of it makes a new one.
  note(kept, before) {
    if (!this.address || (this.query === before && !this.moving)) return;
    if (this.moving) history.replaceState(null, "", this.query);
    else history.pushState(null, "", this.query);
    this.moving = !kept;
  }

  tell(other) {
    for (const listener of this.listeners) listener(other);
  }
}

function checked(field, value) {
  if (value === null || value === undefined || value === "") return field.default;
  if (field.options) return field.options.includes(value) ? value : field.default;
  if (field.text) return String(value).slice(0, 2000);
  const x = Number(value);
  if (!Number.isFinite(x)) return field.default;
  const inside = Math.min(field.hi, Math.max(field.lo, x));
  return field.whole ? Math.round(inside) : inside;
}
