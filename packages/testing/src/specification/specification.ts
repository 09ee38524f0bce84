import type { ActionClass, ModelEvent } from '@framework/core';
import type { AnyEntity } from '@framework/core/adapter';

import { ActionSpecification } from './action-specification.js';
import type { EventOrigin } from './commit-event.js';
import { HandlerSpecification } from './handler-specification.js';
import {
  TestEnvironment,
  type EnvironmentExecution,
  type TestEnvironmentOptions,
} from './test-environment.js';

/**
 * Specifies what actions and handlers do, without any server: each `then…` runs in a new environment in memory.
 *
 * @example apps/counter/test/counter-actions.test.ts
 *
 * ```ts
 * const spec = specification({
 *   models: [Counter],
 *   shards: [shard],
 *   actions: ({ clock, repository }) => [
 *     new OpenCounterAction(clock),
 *     new IncreaseCounterAction(clock, repository(Counter)),
 *   ],
 * });
 * ```
 *
 * @example apps/counter/test/counter-actions.test.ts
 *
 * ```ts
 * await spec
 *   .given(counter)
 *   .when(IncreaseCounterAction, { id: counter.id, by: 5 })
 *   .thenExpect({ models: [counter.increase(5)], events: [new CounterIncreasedEvent(counter.id, 5)] });
 * ```
 */
export function specification(options: TestEnvironmentOptions): Specification {
  return new Specification(options);
}

/** What is given, and what happens then. */
export class Specification {
  readonly #options: TestEnvironmentOptions;
  readonly #given: readonly AnyEntity[];

  /** @see specification */
  constructor(options: TestEnvironmentOptions, given: readonly AnyEntity[] = []) {
    this.#options = options;
    this.#given = given;
  }

  /** Stores further models, without events; those that were never stored get version 1. */
  given(...models: readonly AnyEntity[]): Specification {
    return new Specification(this.#options, [...this.#given, ...models]);
  }

  /** Executes an action, optionally with an idempotency key, a principal or any other option of an execution. */
  when<Params, Result>(
    action: ActionClass<Params, Result>,
    params: NoInfer<Params>,
    configuration?: EnvironmentExecution,
  ): ActionSpecification<Result> {
    return new ActionSpecification({
      name: action.name,
      open: () => this.environment(),
      execute: (environment) => environment.execute(action, params, configuration),
      isDelivered: false,
    });
  }

  /** Commits an event and delivers it to the handlers that want it; `times: 2` delivers it twice, as can happen after a crash. */
  whenHandled(
    event: ModelEvent<unknown>,
    origin?: EventOrigin & { readonly times?: number },
  ): HandlerSpecification {
    return new HandlerSpecification(
      event.constructor.name,
      () => this.environment(),
      (environment) => environment.handle(event, origin),
    );
  }

  /** An environment in which the given models are stored, for whatever the other methods cannot express. */
  async environment(): Promise<TestEnvironment> {
    const environment = await TestEnvironment.open(this.#options);
    await environment.store(...this.#given);
    return environment;
  }
}
