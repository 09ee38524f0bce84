import type { BlockedAttempt, BlockedHead, BlockedModels, BlockedMove } from '@framework/core/adapter';

import { type WorkerContext, StoreBackoff } from '../worker-context.js';
import { type HeldSlot, modelKey } from '../slots/held-slot.js';

interface Waiting<Item, Answer> {
  readonly item: Item;
  readonly answer: (answer: Answer) => void;
  readonly fail: (error: unknown) => void;
}

/** How many statements are executed at once: more would exhaust the pool; with one, a slow statement would delay all others. */
const statementsMax = 2;

/** Sends what several callers ask for at the same time as one statement. */
class StatementBatch<Item, Answer> {
  readonly #itemsMax: number;
  readonly #send: (items: readonly Item[]) => Promise<readonly Answer[]>;
  readonly #waiting: Waiting<Item, Answer>[] = [];
  /** What has no answer yet. */
  readonly #unanswered = new Set<Promise<unknown>>();
  #sendingCount = 0;

  /**
   * @param itemsMax how many items one statement has at most
   * @param send returns an answer for each item
   */
  constructor(itemsMax: number, send: (items: readonly Item[]) => Promise<readonly Answer[]>) {
    this.#itemsMax = itemsMax;
    this.#send = send;
  }

  /** Sends an item with others; rejects when the common statement fails. */
  add(item: Item): Promise<Answer> {
    const { promise, resolve: answer, reject: fail } = Promise.withResolvers<Answer>();
    this.#waiting.push({ item, answer, fail });
    if (this.#sendingCount < statementsMax) void this.#sendWaiting();
    return this.#track(promise);
  }

  /** Sends items in a statement of their own. */
  send(items: readonly Item[]): Promise<readonly Answer[]> {
    return this.#track(this.#send(items));
  }

  /** Resolves when everything that has been added so far has its answer. */
  async answered(): Promise<void> {
    await Promise.allSettled(this.#unanswered);
  }

  #track<Result>(answer: Promise<Result>): Promise<Result> {
    const forget = (): void => void this.#unanswered.delete(answer);
    answer.then(forget, forget);
    this.#unanswered.add(answer);
    return answer;
  }

  async #sendWaiting(): Promise<void> {
    this.#sendingCount++;
    // Requests from the same turn of the event loop are combined.
    await Promise.resolve();
    while (this.#waiting.length > 0) {
      const together = this.#waiting.splice(0, this.#itemsMax);
      try {
        const answers = await this.#send(together.map(({ item }) => item));
        for (const [index, { answer }] of together.entries()) answer(answers[index] as Answer);
      } catch (error) {
        for (const { fail } of together) fail(error);
      }
    }
    this.#sendingCount--;
  }
}

/** Writes under the leases of slots: repeats until everything is written, unless the slot is lost or delivery ends. */
class LeasedWrites<Item extends { readonly token: string }> {
  readonly #context: WorkerContext;
  /** Answers for each item whether its lease was valid. */
  readonly #batch: StatementBatch<Item, boolean>;

  /**
   * @param write returns the tokens of leases that are lost
   * @param onLost called with these
   */
  constructor(
    context: WorkerContext,
    write: (items: readonly Item[]) => Promise<readonly string[]>,
    onLost: (tokens: readonly string[]) => void,
  ) {
    this.#context = context;
    this.#batch = new StatementBatch(context.settings.blockMax, async (items) => {
      const lost = await write(items);
      onLost(lost);
      return items.map(({ token }) => !lost.includes(token));
    });
  }

  /** Writes items of one slot; returns false if the slot was lost or delivery ended before that. */
  async add(slot: HeldSlot, ...items: readonly Item[]): Promise<boolean> {
    if (!slot.held || this.#context.ended.aborted) return false;
    const written = await Promise.all(items.map((item) => this.#answer(this.#batch.add(item))));
    if (written.includes(false)) return false;
    const refused = items.filter((_item, index) => written[index] === undefined);
    return refused.length === 0 || this.#writeRefused(slot, refused);
  }

  /** Resolves when everything that has been sent so far has its answer. */
  answered(): Promise<void> {
    return this.#batch.answered();
  }

  /**
   * Writes items again that the database has refused: alternately all together, in case the cause has gone, and one by one, so that one bad
   * item does not block the rest.
   */
  async #writeRefused(slot: HeldSlot, items: readonly Item[]): Promise<boolean> {
    const { ended } = this.#context;
    const backoff = new StoreBackoff(this.#context);
    const signal = AbortSignal.any([slot.lost, ended]);
    let left = items;
    for (let together = true; left.length > 0; together = !together) {
      await backoff.failed(signal);
      if (signal.aborted) return false;
      const count = together ? left.length : 1;
      let answer: readonly boolean[] | undefined;
      do {
        const [next, others] = [left.slice(0, count), left.slice(count)];
        answer = await this.#answer(this.#batch.send(next));
        // What is refused again comes last.
        left = answer === undefined ? [...others, ...next] : others;
        if (answer?.includes(false) === true || (signal.aborted && left.length > 0)) return false;
      } while (answer !== undefined && left.length > 0);
    }
    return true;
  }

  /** @returns `undefined` when the database has refused the statement, which is reported */
  async #answer<Answer>(sent: Promise<Answer>): Promise<Answer | undefined> {
    try {
      return await sent;
    } catch (error) {
      this.#context.onError(error);
      return undefined;
    }
  }
}

/** What the subscriptions of one database write about blocked models. */
export interface BlockedWrites {
  readonly fail: LeasedWrites<Parameters<BlockedModels['fail']>[0][number]>;
  readonly hold: LeasedWrites<Parameters<BlockedModels['hold']>[0][number]>;
  readonly move: LeasedWrites<Parameters<BlockedModels['move']>[0][number]>;
  /** Records the beginning of attempts; answers whether each has begun. */
  readonly begin: StatementBatch<{ readonly head: BlockedHead; readonly attempt: BlockedAttempt }, boolean>;
}

/** @param onLost called with the tokens of leases that are lost */
export function blockedWrites(
  context: WorkerContext,
  blocked: Pick<BlockedModels, 'fail' | 'hold' | 'move' | 'begin'>,
  onLost: (tokens: readonly string[]) => void,
): BlockedWrites {
  return {
    fail: new LeasedWrites(context, (failures) => blocked.fail(failures), onLost),
    hold: new LeasedWrites(context, (events) => blocked.hold(events), onLost),
    move: new LeasedWrites(context, (moves) => blocked.move(lastOfEach(moves)), onLost),
    begin: new StatementBatch(context.settings.blockMax, (attempts) => blocked.begin(attempts)),
  };
}

/** The last move of each model: one may move several times before the statement is sent. */
function lastOfEach(moves: readonly BlockedMove[]): readonly BlockedMove[] {
  return [...new Map(moves.map((move) => [`${move.handler}\0${modelKey(move)}`, move])).values()];
}
