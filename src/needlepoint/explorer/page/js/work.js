// Work on a view: pieces that are asked two at a time. Answers are kept, so that a slider that comes back finds them.

const ANSWERS = new Map(); // text of a question -> its events
const MOST = 3000;

export class Work {
  constructor(ask, onChange, together = 2) {
    this.ask = ask;
    this.onChange = onChange;
    this.together = together;
    this.reset();
  }

  reset() {
    this.pieces = [];
    this.total = 0;
    this.done = 0;
    this.problem = "";
    this.running ??= new Map();
  }

  // Replaces what waits; what runs already is let finish, because its worker is warm and its answer is kept.
  want(pieces) {
    this.reset();
    for (const piece of pieces) {
      const key = JSON.stringify(piece.question);
      const known = ANSWERS.get(key);
      if (known) piece.take?.(known);
      else this.pieces.push({ ...piece, key });
    }
    this.total = this.pieces.length;
    this.next();
    this.onChange(this);
  }

  next() {
    while (this.running.size < this.together && this.pieces.length > 0) {
      const piece = this.pieces.shift();
      const known = ANSWERS.get(piece.key);
      if (known) {
        this.done += 1;
        piece.take?.(known);
      } else if (this.running.has(piece.key)) {
        this.running.get(piece.key).piece = piece;
        this.done += 1;
      } else {
        this.start(piece);
      }
    }
  }

  async start(piece) {
    const controller = new AbortController();
    const entry = { controller, piece };
    this.running.set(piece.key, entry);
    try {
      const events = await this.ask(piece.question, { signal: controller.signal });
      if (ANSWERS.size > MOST) ANSWERS.clear();
      ANSWERS.set(piece.key, events);
      entry.piece.take?.(events);
    } catch (error) {
      if (error.name !== "AbortError") {
        this.problem = error.message;
        entry.piece.refused?.(error.message);
      }
    } finally {
      this.running.delete(piece.key);
      this.done = Math.min(this.total, this.done + 1);
      this.next();
      this.onChange(this);
    }
  }

  get busy() {
    return this.running.size > 0 || this.pieces.length > 0;
  }

  cancel() {
    this.pieces = [];
    this.total = this.done;
    for (const { controller } of this.running.values()) controller.abort();
    this.onChange(this);
  }
}

export function known(question) {
  return ANSWERS.get(JSON.stringify(question));
}
