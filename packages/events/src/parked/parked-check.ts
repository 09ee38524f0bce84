import type { ParkedEvents } from '@framework/core';
import { modelKey } from '../flow/flow-work.js';
import { type WorkerContext, storeBackoff } from '../worker-context.js';

interface Question {
  readonly handler: string;
  readonly slot: number;
  readonly model: string;
  readonly answer: (parked: boolean) => void;
}

/** Answers whether models still have parked events; questions that come together are one statement. */
export class ParkedCheck {
  readonly #context: WorkerContext;
  readonly #parked: Pick<ParkedEvents, 'models'>;
  #questions: Question[] = [];
  #asking = false;

  constructor(context: WorkerContext, parked: Pick<ParkedEvents, 'models'>) {
    this.#context = context;
    this.#parked = parked;
  }

  /** Says what is true at some instant after the call; true when delivery ends before that could be learnt. */
  isParked(handler: string, slot: number, model: string): Promise<boolean> {
    return new Promise((answer) => {
      this.#questions.push({ handler, slot, model, answer });
      if (!this.#asking) void this.#ask();
    });
  }

  async #ask(): Promise<void> {
    this.#asking = true;
    const backoff = storeBackoff(this.#context);
    // Questions of the same turn of the event loop go together.
    await Promise.resolve();
    while (this.#questions.length > 0) {
      const asked = this.#questions;
      this.#questions = [];
      try {
        const places = new Map(asked.map(({ handler, slot }) => [`${handler} ${slot}`, { handler, slot }]));
        const models = await this.#parked.models([...places.values()]);
        const parked = new Set(models.map((each) => `${each.handler} ${modelKey(each)}`));
        for (const { handler, model, answer } of asked) answer(parked.has(`${handler} ${model}`));
      } catch (error) {
        this.#context.onError(error);
        if (this.#context.ended.aborted) for (const { answer } of asked) answer(true);
        else this.#questions.unshift(...asked);
        await backoff.failed(this.#context.ended);
      }
    }
    this.#asking = false;
  }
}
