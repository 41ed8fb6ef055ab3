// The texts of specs that views ask about, written as in Python; the server reads them with the same parser.

import { number } from "./code.js";

export function contestants(own) {
  const models = [
    ["softmax", "KeyValueAttention(Softmax())"],
    ["linear", "KeyValueAttention(Linear())"],
    ["erf", "KeyValueAttention(Erf())"],
  ];
  for (const { name, example } of own.activation) models.push([name, `KeyValueAttention(${example ?? `${name}()`})`]);
  return models.map(([name, model], i) => ({ name, model, index: i }));
}

export function taskText(v) {
  return `${v.task}(tokens=${v.tokens}, snr=${number(v.snr)}, noise=${number(v.noise)})`;
}
