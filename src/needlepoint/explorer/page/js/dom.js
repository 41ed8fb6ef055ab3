// Elements without templates: text is always text, so that nothing that is shown can become part of the page.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("aria-") && value !== undefined) {
      element.setAttribute(name, String(value));
      continue;
    }
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// 0.4691 with an error of 0.0021 is "0.4691 ± 0.0021": two digits of the error, as many of the value.
export function within(value, error) {
  if (value === null || value === undefined) return "unknown";
  if (error === null || error === undefined) return `${digits(value)} (error unknown)`;
  if (!(error > 1e-7 * Math.abs(value))) return value.toPrecision(6);
  const places = Math.min(8, Math.max(0, 1 - Math.floor(Math.log10(error))));
  return `${value.toFixed(places)} ± ${error.toFixed(places)}`;
}

export function digits(value, count = 3) {
  return String(Number(value.toPrecision(count)));
}

export function debounced(action, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), milliseconds);
  };
}
