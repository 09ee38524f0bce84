import type { ActionExecutor, DeliverableEvent } from '@framework/core';
import type { RegisteredHandler } from '../handler/event-handler-registry.js';
import type { EnvelopeFactory } from '../handler/envelope-factory.js';
import type { HeldSlot } from '../lease/held-slot.js';
import type { DeliveryClock } from '../delivery-clock.js';
import { CallContext } from './call-context.js';
import { CallDeadlines } from './call-deadlines.js';
import { HandlerTimeout } from './handler-timeout.js';

/** How a call ended; `dropped`: its slot was lost or delivery ended, so that its outcome is nobody's business here. */
export type CallOutcome =
  | { readonly kind: 'done' }
  | { readonly kind: 'failed'; readonly error: unknown }
  | { readonly kind: 'dropped' };

interface RunningCall {
  readonly slot: HeldSlot;
  readonly context: CallContext;
  /** Ends the waiting for the call, which itself may run on. */
  readonly giveUp: (outcome: CallOutcome, reason: unknown) => void;
}

/** Calls one handler with events, and never waits longer than the handler may take. */
export class HandlerCaller {
  readonly #handler: RegisteredHandler;
  readonly #executor: Pick<ActionExecutor, 'execute'>;
  readonly #envelopes: EnvelopeFactory;
  readonly #onSettled: () => void;
  readonly #deadlines: CallDeadlines<RunningCall>;
  readonly #running = new Set<RunningCall>();
  #abandonedCount = 0;

  constructor(options: {
    readonly handler: RegisteredHandler;
    readonly executor: Pick<ActionExecutor, 'execute'>;
    readonly envelopes: EnvelopeFactory;
    readonly timeoutMs: number;
    readonly clock: DeliveryClock;
    /** Called when a call that was given up has ended after all. */
    readonly onSettled: () => void;
  }) {
    this.#handler = options.handler;
    this.#executor = options.executor;
    this.#envelopes = options.envelopes;
    this.#onSettled = options.onSettled;
    const { timeoutMs } = options;
    this.#deadlines = new CallDeadlines(timeoutMs, options.clock, ({ giveUp }) => {
      const error = new HandlerTimeout(options.handler.name, timeoutMs);
      giveUp({ kind: 'failed', error }, error);
    });
  }

  /** How many calls were given up and still run. */
  get abandonedCount(): number {
    return this.#abandonedCount;
  }

  /** Calls the handler with the events, which belong to one slot; at least one. Never rejects. */
  call(
    events: readonly [DeliverableEvent, ...DeliverableEvent[]],
    attempt: number,
    slot: HeldSlot,
  ): Promise<CallOutcome> {
    return new Promise((resolve) => {
      const context = new CallContext(this.#handler.name, events[0], attempt, this.#executor);
      let abandoned = false;
      const call: RunningCall = {
        slot,
        context,
        giveUp: (outcome, reason) => {
          this.#forget(call);
          abandoned = true;
          this.#abandonedCount++;
          context.abort(reason);
          resolve(outcome);
        },
      };
      const settled = (outcome: CallOutcome): void => {
        if (abandoned) {
          this.#abandonedCount--;
          this.#onSettled();
          return;
        }
        this.#forget(call);
        resolve(outcome);
      };
      this.#running.add(call);
      this.#deadlines.add(call);
      this.#invoke(events, attempt, context).then(
        () => settled({ kind: 'done' }),
        (error: unknown) => settled({ kind: 'failed', error }),
      );
    });
  }

  /** Gives up the calls for a slot that was lost, or all of them. */
  drop(reason: unknown, slot?: HeldSlot): void {
    for (const call of this.#running) {
      if (slot === undefined || call.slot === slot) call.giveUp({ kind: 'dropped' }, reason);
    }
    if (slot === undefined) this.#deadlines.stop();
  }

  async #invoke(events: readonly DeliverableEvent[], attempt: number, context: CallContext): Promise<void> {
    const { handler, eventClasses } = this.#handler;
    const envelopes = events.map((event) =>
      this.#envelopes.envelope(event, eventClasses?.get(event.type), attempt),
    );
    if ('handleBatch' in handler) return handler.handleBatch(envelopes, context);
    for (const envelope of envelopes) await handler.handle(envelope, context);
  }

  #forget(call: RunningCall): void {
    this.#running.delete(call);
    this.#deadlines.remove(call);
  }
}
