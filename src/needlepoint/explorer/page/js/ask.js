// One way to ask: ask(question, {onEvent, signal}) resolves with the events, or throws a Refusal with one sentence.
// Over HTTP here; a notebook has the same over messages to its kernel (kernel.js), a saved page has none (frozen).

export class Refusal extends Error {
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

const PAUSE = 700; // milliseconds before a question is asked again that found the queue full

export function overHttp(token) {
  return async function ask(question, { onEvent = () => {}, signal } = {}) {
    for (;;) {
      const response = await send(question, token, signal);
      if (response.status === 429) {
        await pause(PAUSE * (0.5 + Math.random()), signal);
        continue;
      }
      if (!response.ok) throw new Refusal((await response.json()).sentence, response.status);
      return events(response.body.getReader(), onEvent);
    }
  };
}

async function send(question, token, signal) {
  try {
    return await fetch("/ask", {
      method: "POST",
      headers: { "content-type": "application/json", "x-needlepoint-token": token },
      body: JSON.stringify(question),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The explorer does not answer: is `needlepoint explore` still running?");
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("cancelled", "AbortError"));
    });
  });
}

async function events(reader, onEvent) {
  const found = [];
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value ?? new Uint8Array(), { stream: !done });
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) take(JSON.parse(line), found, onEvent);
    if (done) break;
  }
  if (found.at(-1)?.event !== "done") throw new Refusal("The answer ended early; ask again.");
  return found;
}

export function take(event, found, onEvent) {
  if (event.event === "refused" || event.event === "failed") throw new Refusal(event.sentence, 422);
  found.push(event);
  onEvent(event);
}

export function frozen(sentence) {
  return async function ask() {
    throw new Refusal(sentence);
  };
}
