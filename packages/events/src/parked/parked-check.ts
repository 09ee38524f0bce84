import type { LeasedModel, ParkedEvents } from '@framework/core';
import { modelKey } from '../flow/flow-work.js';
import { type WorkerContext, storeBackoff } from '../worker-context.js';

/** How many models one statement asks about. */
const askedMax = 500;

interface Question {
  readonly model: LeasedModel;
  readonly answer: (parked: boolean) => void;
}

/** Answers whether models still have parked events; questions that come together are one statement. */
export class ParkedCheck {
  readonly #context: WorkerContext;
  readonly #parked: Pick<ParkedEvents, 'stillParked'>;
  readonly #questions: Question[] = [];
  #asking = false;

  constructor(context: WorkerContext, parked: Pick<ParkedEvents, 'stillParked'>) {
    this.#context = context;
    this.#parked = parked;
  }

  /**
   * Says what is true at some instant after the call; true when that cannot be learnt, because the lease holds no more, or delivery ends
   * before.
   */
  isParked(model: LeasedModel): Promise<boolean> {
    return new Promise((answer) => {
      this.#questions.push({ model, answer });
      if (!this.#asking) void this.#ask();
    });
  }

  async #ask(): Promise<void> {
    this.#asking = true;
    const backoff = storeBackoff(this.#context);
    // Questions of the same turn of the event loop go together.
    await Promise.resolve();
    while (this.#questions.length > 0) {
      const asked = this.#questions.splice(0, askedMax);
      try {
        const models = await this.#parked.stillParked(asked.map(({ model }) => model));
        const parked = new Set(models.map((each) => `${each.handler} ${modelKey(each)}`));
        for (const { model, answer } of asked) answer(parked.has(`${model.handler} ${modelKey(model)}`));
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
