import type { DeliverableEvent, ParkedEvent } from '@framework/core';
import { errorText } from '../call/error-text.js';
import type { HandlerCaller } from '../call/handler-caller.js';
import { retryAfterMs } from '../handler/handler-retry.js';
import type { HeldSlot } from '../lease/held-slot.js';
import type { Parker } from '../parked/parker.js';
import type { WorkerContext } from '../worker-context.js';
import type { FlowPolicy } from './flow-policy.js';
import { type EventWork, modelKey } from './flow-work.js';
import type { ParkedModelSet } from './parked-model-set.js';

/** Handles events as they come from the log; what fails, and what follows it, is parked. */
export class EventStep {
  readonly #context: WorkerContext;
  readonly #handler: string;
  readonly #policy: FlowPolicy;
  readonly #caller: HandlerCaller;
  readonly #parker: Parker;
  readonly #parked: ParkedModelSet;
  readonly #onParked: () => void;

  constructor(options: {
    readonly context: WorkerContext;
    readonly handler: string;
    readonly policy: FlowPolicy;
    readonly caller: HandlerCaller;
    readonly parker: Parker;
    readonly parked: ParkedModelSet;
    /** Called when an event was parked that is to be tried again. */
    readonly onParked: () => void;
  }) {
    this.#context = options.context;
    this.#handler = options.handler;
    this.#policy = options.policy;
    this.#caller = options.caller;
    this.#parker = options.parker;
    this.#parked = options.parked;
    this.#onParked = options.onParked;
  }

  /** How many events of a lane belong together, when this is the first. */
  countMax(first: EventWork): number {
    if (this.#policy.batches || !this.#isParked(first)) return this.#policy.batchMax;
    return this.#context.settings.parkMax;
  }

  /** Handles events of one lane, in order; those that are not finished afterwards are somebody else's now. */
  async run(works: readonly EventWork[]): Promise<void> {
    const held = works.filter(({ slot }) => slot.held);
    const [next, ...others] = this.#parked.empty ? held : await this.#withoutParked(held);
    if (next !== undefined) await this.#handle([next, ...others]);
  }

  /** Parks the events whose models are parked, and gives the others. */
  async #withoutParked(works: readonly EventWork[]): Promise<readonly EventWork[]> {
    const waiting = works.filter((work) => this.#isParked(work));
    const [first] = waiting;
    if (first === undefined) return works;
    const waited = waiting.map(({ event }) => this.#parkedEvent(event, 'waits'));
    if (await this.#parker.park(first.slot, waited)) finish(waiting);
    return works.filter((work) => !this.#isParked(work));
  }

  async #handle(works: readonly [EventWork, ...EventWork[]]): Promise<void> {
    const [{ slot, event }, ...others] = works;
    const { ended, stopping, onError } = this.#context;
    for (let attempt = 1; slot.held && !ended.aborted; attempt++) {
      const outcome = await this.#caller.call([event, ...others.map((work) => work.event)], attempt, slot);
      if (outcome.kind === 'done') return finish(works);
      if (outcome.kind === 'dropped') return;
      if (!this.#policy.waitsWhenFailed) return this.#park(works, outcome.error);
      onError(outcome.error);
      if (stopping.aborted) return;
      await this.#wait(slot, attempt);
    }
  }

  async #park(works: readonly [EventWork, ...EventWork[]], error: unknown): Promise<void> {
    const [{ slot }] = works;
    const models = new Set<string>();
    const events = works.map(({ event }) => {
      const model = modelKey(event);
      const parked = models.has(model)
        ? this.#parkedEvent(event, 'waits')
        : this.#parkedEvent(event, 'failed', error);
      models.add(model);
      return parked;
    });
    if (!(await this.#parker.park(slot, events))) return;
    for (const model of models) this.#parked.add(slot.slot, model);
    finish(works);
    this.#onParked();
  }

  #wait(slot: HeldSlot, attempt: number): Promise<void> {
    const waitMs = retryAfterMs(this.#policy.retry, attempt, this.#context.random());
    return this.#context.clock.sleep(waitMs, AbortSignal.any([slot.lost, this.#context.stopping]));
  }

  #isParked({ slot, event }: EventWork): boolean {
    return this.#parked.has(slot.slot, modelKey(event));
  }

  #parkedEvent(
    event: DeliverableEvent,
    why: 'waits' | 'failed',
    error?: unknown,
  ): Omit<ParkedEvent, 'token'> {
    const { retry } = this.#policy;
    const attempts = why === 'failed' ? 1 : 0;
    const dead = attempts >= retry.attemptsMax;
    return {
      handler: this.#handler,
      event,
      attempts,
      error: why === 'failed' ? errorText(error) : undefined,
      retryAfterMs:
        why === 'failed' && !dead ? retryAfterMs(retry, attempts, this.#context.random()) : undefined,
      dead,
      suspect: false,
    };
  }
}

function finish(works: readonly EventWork[]): void {
  for (const { onFinished } of works) onFinished();
}
