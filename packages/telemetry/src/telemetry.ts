import type { Observer, Operation } from '@framework/core/adapter';
import { type TracerProvider, context, trace } from '@opentelemetry/api';

import { Durations, type Measured } from './durations.js';
import { type MeterProviders, metersOf, scope } from './meters.js';
import { type OpenSpans, beginSpans, endSpans, errorType, unlessThrown } from './spans.js';

/** Where traces and metrics go. */
export interface TelemetryOptions {
  /** Default: that of the SDK that is registered with `@opentelemetry/api`; without one, nothing is traced. */
  readonly tracerProvider?: TracerProvider;
  /** Default: that of the SDK that is registered with `@opentelemetry/api`; without one, nothing is measured. */
  readonly meterProvider?: MeterProviders;
}

/**
 * Traces and measures executions, delivery and relays with OpenTelemetry. Pass it as `observer` to each of them.
 *
 * An execution is a part of the trace in which it is requested. The log carries that trace to handlers, and relays carry it to
 * brokers. What a trace does not sample costs little; metrics count everything.
 */
export class Telemetry implements Observer {
  readonly #tracer;
  /** One for each SDK that takes what is measured. */
  readonly #durations: readonly Durations[];

  constructor({ tracerProvider = trace, meterProvider }: TelemetryOptions = {}) {
    this.#tracer = tracerProvider.getTracer(scope);
    this.#durations = metersOf(meterProvider)
      .map((meter) => new Durations(meter))
      .filter(({ areTaken }) => areTaken);
  }

  /**
   * Runs an operation in the context of its spans, and measures it. What an SDK throws changes nothing: an action that is committed
   * must not look as if it had failed.
   */
  observe<T>(operation: Operation, run: () => Promise<T>): Promise<T> {
    const opened = unlessThrown(() => beginSpans(this.#tracer, operation));
    if (operation.kind === 'perform' && operation.attempt > 1)
      for (const durations of this.#durations) unlessThrown(() => durations.recordRetry(operation.action));
    const measured = this.#durations.length > 0 && isMeasured(operation) ? operation : undefined;
    if (opened === undefined && measured === undefined) return run();
    const startedMs = performance.now();
    const outcome = opened === undefined ? run() : runWithin(opened, run);
    const end = (failure?: { readonly error: unknown }): void => {
      if (measured !== undefined) this.#record(measured, performance.now() - startedMs, failure);
      if (opened !== undefined) endSpans(opened, failure);
    };
    outcome.then(
      () => end(),
      (error: unknown) => end({ error }),
    );
    // Not what `then` returns: the caller would go on later than without telemetry, and would have to compare two outcomes.
    return outcome;
  }

  #record(operation: Measured, durationMs: number, failure: { readonly error: unknown } | undefined): void {
    for (const durations of this.#durations)
      unlessThrown(() => durations.record(operation, durationMs, failure && errorType(failure.error)));
  }
}

/**
 * Runs in the context of spans, or without it when the context manager throws, and returns what was run itself: what a context manager
 * returns may end at another time, otherwise or never.
 */
function runWithin<T>({ within }: OpenSpans, run: () => Promise<T>): Promise<T> {
  let outcome: Promise<T> | undefined;
  const begin = (): Promise<T> => (outcome ??= run());
  const returned = unlessThrown<unknown>(() => context.with(within, begin));
  const begun = begin();
  // Nobody waits for it. Not `Promise.resolve`, which looks at a promise of others at once, and throws what that throws.
  if (returned !== begun) new Promise((resolve) => resolve(returned)).catch(() => undefined);
  return begun;
}

function isMeasured(operation: Operation): operation is Measured {
  return operation.kind !== 'perform' && operation.kind !== 'read';
}
