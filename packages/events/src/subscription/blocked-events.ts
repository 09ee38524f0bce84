import type {
  BlockedEvent,
  BlockedEvents,
  BlockedModel,
  DeliverableEvent,
  LeasedModel,
} from '@framework/core/adapter';

import type { HeldSlot } from '../slots/held-slot.js';
import { type WorkerContext, storeBackoff } from '../worker-context.js';
import { modelKey } from './keyed-queue.js';

/** How many events and bytes to block. */
interface Load {
  readonly count: number;
  readonly bytes: number;
}

/** Events that will be blocked in one statement, and the callers who wait for that. */
interface Waiting extends Load {
  readonly events: readonly BlockedEvent[];
  readonly answer: (isBlocked: boolean) => void;
}

/** Blocks events durably: repeats until they are blocked, unless the slot is lost or delivery ends. */
export class EventBlocker {
  readonly #context: WorkerContext;
  readonly #blocked: Pick<BlockedEvents, 'block'>;
  readonly #onLost: (tokens: readonly string[]) => void;
  readonly #waiting: Waiting[] = [];
  #blocking = false;

  constructor(
    context: WorkerContext,
    blocked: Pick<BlockedEvents, 'block'>,
    onLost: (tokens: readonly string[]) => void,
  ) {
    this.#context = context;
    this.#blocked = blocked;
    this.#onLost = onLost;
  }

  /** Blocks events of one slot, in order; returns false when they belong to another process now. */
  async block(slot: HeldSlot, events: readonly Omit<BlockedEvent, 'token'>[]): Promise<boolean> {
    const { settings, ended } = this.#context;
    for (let from = 0; from < events.length;) {
      if (!slot.held || ended.aborted) return false;
      const next = events.slice(from, from + settings.blockMax);
      const chunk = next.slice(0, this.#fittingCount(next.map(({ event }) => loadOf([event]))));
      from += chunk.length;
      const tokened = chunk.map((event) => ({ ...event, token: slot.token }));
      // Events that are refused must not keep out the others.
      if (!(await this.#blockWithOthers(tokened)) && !(await this.#blockAlone(slot, tokened))) return false;
    }
    return slot.held;
  }

  /** Blocks together what is requested at the same time: one statement at a time leaves connections for renewing the leases. */
  #blockWithOthers(events: readonly BlockedEvent[]): Promise<boolean> {
    return new Promise((answer) => {
      this.#waiting.push({ ...loadOf(events.map(({ event }) => event)), events, answer });
      if (!this.#blocking) void this.#blockWaiting();
    });
  }

  async #blockWaiting(): Promise<void> {
    this.#blocking = true;
    // Requests from the same turn of the event loop are combined.
    await Promise.resolve();
    while (this.#waiting.length > 0) {
      const together = this.#waiting.splice(0, this.#fittingCount(this.#waiting));
      const isBlocked = await this.#tryToBlock(together.flatMap(({ events }) => events));
      for (const { answer } of together) answer(isBlocked);
    }
    this.#blocking = false;
  }

  /** How many of the first loads, at least one, fit into one statement, which copies events completely, however large they are. */
  #fittingCount(loads: readonly Load[]): number {
    const { blockMax, readBytesMax } = this.#context.settings;
    let [count, bytes] = [0, 0];
    const end = loads.findIndex((load, index) => {
      count += load.count;
      bytes += load.bytes;
      return index > 0 && (count > blockMax || bytes > readBytesMax);
    });
    return end === -1 ? loads.length : end;
  }

  async #blockAlone(slot: HeldSlot, events: readonly BlockedEvent[]): Promise<boolean> {
    const { ended } = this.#context;
    const backoff = storeBackoff(this.#context);
    while (slot.held && !ended.aborted) {
      await backoff.failed(AbortSignal.any([slot.lost, ended]));
      if (slot.held && !ended.aborted && (await this.#tryToBlock(events))) return true;
    }
    return false;
  }

  async #tryToBlock(events: readonly BlockedEvent[]): Promise<boolean> {
    try {
      this.#onLost(await this.#blocked.block(events));
      return true;
    } catch (error) {
      this.#context.onError(error);
      return false;
    }
  }
}

function loadOf(events: readonly DeliverableEvent[]): Load {
  return { count: events.length, bytes: events.reduce((sum, { bytes = 0 }) => sum + bytes, 0) };
}

/** The maximum number of models that one statement asks about. */
const askedMax = 500;

interface Question {
  readonly model: LeasedModel;
  readonly answer: (blocked: boolean) => void;
}

/** Answers whether models still have blocked events; simultaneous questions become one statement. */
export class BlockedCheck {
  readonly #context: WorkerContext;
  readonly #blocked: Pick<BlockedEvents, 'stillBlocked'>;
  readonly #questions: Question[] = [];
  #asking = false;

  constructor(context: WorkerContext, blocked: Pick<BlockedEvents, 'stillBlocked'>) {
    this.#context = context;
    this.#blocked = blocked;
  }

  /**
   * Returns what was true at some instant after the call; true when the answer cannot be found out, because the lease is no
   * longer valid or delivery ends first.
   */
  isBlocked(model: LeasedModel): Promise<boolean> {
    return new Promise((answer) => {
      this.#questions.push({ model, answer });
      if (!this.#asking) void this.#ask();
    });
  }

  async #ask(): Promise<void> {
    this.#asking = true;
    const backoff = storeBackoff(this.#context);
    // Questions from the same turn of the event loop are combined.
    await Promise.resolve();
    while (this.#questions.length > 0) {
      const asked = this.#questions.splice(0, askedMax);
      try {
        const models = await this.#blocked.stillBlocked(asked.map(({ model }) => model));
        const blocked = new Set(models.map(keyOf));
        for (const { model, answer } of asked) answer(blocked.has(keyOf(model)));
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

function keyOf(model: BlockedModel): string {
  return `${model.handler}\0${modelKey(model)}`;
}
