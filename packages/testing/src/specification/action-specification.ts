import type { EventClass } from '@framework/core';
import { eventTypeOf } from '@framework/core/adapter';

import {
  type Ending,
  type Expected,
  type ExpectedEffects,
  type ExpectedError,
  type ExpectedEvent,
  type ExpectedModel,
  Like,
  assertMatches,
  assertThrown,
} from './expectation.js';
import type { TestEnvironment } from './test-environment.js';

/** What must have come of an action; what is left out is left open. */
export interface ExpectedOutcome<Result> extends ExpectedEffects {
  readonly result?: Expected<Result>;
}

/** An action that a specification executes in an environment of its own, once for each expectation. */
export class ActionSpecification<Result> {
  readonly #name: string;
  readonly #open: () => Promise<TestEnvironment>;
  readonly #execute: (environment: TestEnvironment) => Promise<Result>;
  readonly #isDelivered: boolean;

  /** Made by {@link Specification.when}. */
  constructor(options: {
    readonly name: string;
    readonly open: () => Promise<TestEnvironment>;
    readonly execute: (environment: TestEnvironment) => Promise<Result>;
    readonly isDelivered: boolean;
  }) {
    this.#name = options.name;
    this.#open = options.open;
    this.#execute = options.execute;
    this.#isDelivered = options.isDelivered;
  }

  /** The same, with everything delivered afterwards until nothing is pending or due: a saga from its first step on. */
  delivered(): ActionSpecification<Result> {
    return new ActionSpecification({
      name: this.#name,
      open: this.#open,
      execute: this.#execute,
      isDelivered: true,
    });
  }

  /**
   * Executes the action and compares what came of it.
   *
   * @returns the environment, for whatever else there is to see
   * @throws AssertionError with the difference; whatever the action throws
   */
  async thenExpect(expected: ExpectedOutcome<Result>): Promise<TestEnvironment> {
    const { outcome, ending } = await this.#run();
    if ('error' in ending) throw ending.error;
    if ('result' in expected) assertMatches('results', ending.result, expected.result);
    if (this.#isDelivered) await outcome.environment.deliverAll();
    await outcome.assertEffects(expected);
    return outcome.environment;
  }

  /** Compares the action's result; as {@link thenExpect}. */
  thenResult(result: Expected<Result>): Promise<TestEnvironment> {
    return this.thenExpect({ result });
  }

  /** Compares all events that were committed, in their order; as {@link thenExpect}. */
  thenEvents(...events: readonly ExpectedEvent[]): Promise<TestEnvironment> {
    return this.thenExpect({ events });
  }

  /** Compares all models that were added or updated, in the order of their first change; as {@link thenExpect}. */
  thenModels(...models: readonly ExpectedModel[]): Promise<TestEnvironment> {
    return this.thenExpect({ models });
  }

  /** Executes the action, of which nothing must come but its result; as {@link thenExpect}. */
  thenNothing(): Promise<TestEnvironment> {
    return this.thenExpect({ events: [], models: [] });
  }

  /**
   * Executes the action, which must throw and have written nothing.
   *
   * @param error its `code`, or its class
   * @throws AssertionError when it does not, or throws something else
   */
  async thenThrows(error: ExpectedError): Promise<TestEnvironment> {
    const { outcome, ending } = await this.#run();
    assertThrown(this.#name, ending, error);
    await outcome.assertEffects({ events: [], models: [] });
    return outcome.environment;
  }

  async #run(): Promise<{ readonly outcome: Outcome; readonly ending: Ending }> {
    const environment = await this.#open();
    const outcome = new Outcome(environment, environment.commits.length);
    const ending = await this.#execute(environment).then(
      (result) => ({ result }),
      (error: unknown) => ({ error }),
    );
    return { outcome, ending };
  }
}

/** What has come of one step in an environment: everything that was committed since it began. */
export class Outcome {
  readonly environment: TestEnvironment;
  readonly #since: number;

  /** @param since how many commits there were before the step */
  constructor(environment: TestEnvironment, since: number) {
    this.environment = environment;
    this.#since = since;
  }

  /**
   * Compares what was committed with what is expected.
   *
   * @throws AssertionError with the difference
   * @throws UnstorableValueError `unstorable-value` when an event cannot be read by the schema that wrote it
   */
  async assertEffects({ events, models }: ExpectedEffects): Promise<void> {
    if (events !== undefined) assertMatches('events', this.#events(events), events);
    if (models !== undefined)
      assertMatches('models', await this.environment.changedSince(this.#since), models);
  }

  /** As instances of the classes that are expected and that handlers want; others as they stand in the log. */
  #events(expected: readonly ExpectedEvent[]): readonly unknown[] {
    const classes = new Map<string, EventClass>();
    for (const { eventClasses } of this.environment.handlers.handlers)
      for (const [type, eventClass] of eventClasses ?? []) classes.set(type, eventClass);
    for (const each of expected) {
      const eventClass = each instanceof Like ? each.type : each.constructor;
      classes.set(eventTypeOf(eventClass as unknown as EventClass), eventClass as unknown as EventClass);
    }
    const logged = this.environment.commits.slice(this.#since).flatMap(({ events }) => events);
    return logged.map((event) => this.environment.read(event, classes.get(event.type)));
  }
}
