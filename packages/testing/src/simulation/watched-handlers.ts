import { type ActionClass, type Clock, FrameworkError } from '@framework/core';
import { actionNameOf } from '@framework/core/adapter';
import { type AnyEventHandler, type HandlerContext, type HandlerExecution } from '@framework/events';

import { type HandlerCall, deliveryRecords, handlersAround } from '../record/delivery-record.js';
import { type History, effectHeader } from './history.js';
import { type CallErrors, type DeliveryWatch, errorsOf } from './reference/delivery-watch.js';
import type { StepOwner } from './scheduler.js';

/** What is needed to watch handlers. */
export interface HandlerWatch {
  readonly history: History;
  readonly watch: Pick<DeliveryWatch, 'begins'>;
  readonly owner: StepOwner;
  readonly clock: Clock;
  /** The timeout of handlers that declare none. */
  readonly timeoutMs: number;
  /** The current name of a handler, whatever this version of the code calls it. */
  readonly nameOf: (name: string) => string;
  /** Receives each change in the number of running calls. */
  readonly onRunning: (change: 1 | -1) => void;
}

/** Wraps the handlers of a process, so that every call and every effect is recorded. */
export function watchedHandlers(
  handlers: readonly AnyEventHandler[],
  dependencies: HandlerWatch,
): readonly AnyEventHandler[] {
  return handlersAround(handlers, (call) => watchedCall({ ...dependencies, ...call }));
}

async function watchedCall({
  handler: { name: declared, options },
  history,
  watch,
  owner,
  clock,
  nameOf,
  onRunning,
  envelopes,
  context,
  work,
  ...dependencies
}: HandlerWatch & HandlerCall): Promise<void> {
  const name = nameOf(declared);
  const timeoutMs = options.timeoutMs ?? dependencies.timeoutMs;
  // After the death of a process, its remaining code must not do anything.
  const isDead = (): boolean => owner.state === 'dead';
  if (isDead()) return new Promise(() => undefined);
  const eventIds = envelopes.map(({ eventId }) => eventId);
  const onEnded = watch.begins({ process: owner, options, eventIds });
  const { stalledMs } = owner;
  const startedMs = clock.elapsedMs();
  const records = deliveryRecords(name, envelopes, history.nextPlace());
  history.deliveries.push(...records);
  const [first] = envelopes;
  const ends = (left: CallErrors): void => {
    onEnded(left);
    const done = history.nextPlace();
    for (const record of records) if (!left.errors.has(record.eventId)) record.done = done;
  };
  onRunning(1);
  try {
    const watched = watchedContext(context, name, first?.eventId ?? '', history);
    const fails = (thrown: unknown): void => ends(errorsOf(thrown, eventIds));
    await untilGivenUp(() => work(watched), context, fails);
  } finally {
    onRunning(-1);
    if (clock.elapsedMs() - startedMs > timeoutMs && owner.stalledMs === stalledMs) {
      history.count('call that took too long');
      if (!context.signal.aborted)
        history.violations.push(`${name} was not told after ${timeoutMs} ms that its call was aborted`);
    }
  }
  if (isDead()) return new Promise(() => undefined);
  // Nobody waits any more for the outcome of an aborted call.
  if (!context.signal.aborted) ends({ errors: new Map(), isPartial: false });
}

/**
 * Reports how a call fails: by itself, or because it takes too long. After an abort, its own failure does not matter
 * any more.
 */
async function untilGivenUp(
  call: () => Promise<void>,
  { signal }: HandlerContext,
  onFailed: (thrown: unknown) => void,
): Promise<void> {
  const onAborted = (): void => {
    if (FrameworkError.find(signal.reason)?.code === 'handler-timeout') onFailed(signal.reason);
  };
  signal.addEventListener('abort', onAborted, { once: true });
  try {
    await call();
  } catch (thrown) {
    if (!signal.aborted) onFailed(thrown);
    throw thrown;
  } finally {
    signal.removeEventListener('abort', onAborted);
  }
}

/** Marks the commits of the handler's actions, and records those that succeeded. */
function watchedContext(
  context: HandlerContext,
  handler: string,
  eventId: string,
  history: History,
): HandlerContext {
  return {
    attempt: context.attempt,
    get signal() {
      return context.signal;
    },
    execute: async <Params, Result>(
      action: ActionClass<Params, Result>,
      params: NoInfer<Params>,
      configuration: HandlerExecution = {},
    ): Promise<Result> => {
      const effect = [handler, eventId, actionNameOf(action), configuration.key ?? ''].join(' ');
      const headers = { ...configuration.headers, [effectHeader]: effect };
      const wasGivenUp = context.signal.aborted;
      const result = await context.execute(action, params, { ...configuration, headers });
      if (wasGivenUp) history.violations.push(`${effect} was started by an aborted call`);
      history.effects.push({ handler, eventId, effect });
      return result;
    },
  };
}
