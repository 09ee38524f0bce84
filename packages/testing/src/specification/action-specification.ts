import { type EventClass, eventTypeOf } from '@framework/core';

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
import type { World } from './test-environment.js';

/** What must have come of an action; what is left out is left open. */
export interface ExpectedOutcome<Result> extends ExpectedEffects {
  readonly result?: Expected<Result>;
}

/** An action that a specification executes in a world of its own, once for each expectation. */
export class ActionSpecification<Result> {
  readonly #name: string;
  readonly #open: () => Promise<World>;
  readonly #execute: (world: World) => Promise<Result>;
  readonly #isDelivered: boolean;

  /** Made by {@link Specification.when}. */
  constructor(options: {
    readonly name: string;
    readonly open: () => Promise<World>;
    readonly execute: (world: World) => Promise<Result>;
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
   * @returns the world, for whatever else there is to see
   * @throws AssertionError with the difference; whatever the action throws
   */
  async thenExpect(expected: ExpectedOutcome<Result>): Promise<World> {
    const { outcome, ending } = await this.#run();
    if ('error' in ending) throw ending.error;
    if ('result' in expected) assertMatches('results', ending.result, expected.result);
    if (this.#isDelivered) await outcome.world.deliverAll();
    await outcome.assertEffects(expected);
    return outcome.world;
  }

  /** Compares the action's result; as {@link thenExpect}. */
  thenResult(result: Expected<Result>): Promise<World> {
    return this.thenExpect({ result });
  }

  /** Compares all events that were committed, in their order; as {@link thenExpect}. */
  thenEvents(...events: readonly ExpectedEvent[]): Promise<World> {
    return this.thenExpect({ events });
  }

  /** Compares all models that were added or updated, in the order of their first change; as {@link thenExpect}. */
  thenModels(...models: readonly ExpectedModel[]): Promise<World> {
    return this.thenExpect({ models });
  }

  /** Executes the action, of which nothing must come but its result; as {@link thenExpect}. */
  thenNothing(): Promise<World> {
    return this.thenExpect({ events: [], models: [] });
  }

  /**
   * Executes the action, which must throw and have written nothing.
   *
   * @param error its `code`, or its class
   * @throws AssertionError when it does not, or throws something else
   */
  async thenThrows(error: ExpectedError): Promise<World> {
    const { outcome, ending } = await this.#run();
    assertThrown(this.#name, ending, error);
    await outcome.assertEffects({ events: [], models: [] });
    return outcome.world;
  }

  async #run(): Promise<{ readonly outcome: Outcome; readonly ending: Ending }> {
    const world = await this.#open();
    const outcome = new Outcome(world, world.commits.length);
    const ending = await this.#execute(world).then(
      (result) => ({ result }),
      (error: unknown) => ({ error }),
    );
    return { outcome, ending };
  }
}

/** What has come of one step in a world: everything that was committed since it began. */
export class Outcome {
  readonly world: World;
  readonly #since: number;

  /** @param since how many commits there were before the step */
  constructor(world: World, since: number) {
    this.world = world;
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
    if (models !== undefined) assertMatches('models', await this.world.changedSince(this.#since), models);
  }

  /** As instances of the classes that are expected and that handlers want; others as they stand in the log. */
  #events(expected: readonly ExpectedEvent[]): readonly unknown[] {
    const classes = new Map<string, EventClass>();
    for (const { eventClasses } of this.world.handlers.handlers)
      for (const [type, eventClass] of eventClasses ?? []) classes.set(type, eventClass);
    for (const each of expected) {
      const eventClass = each instanceof Like ? each.type : each.constructor;
      classes.set(eventTypeOf(eventClass as unknown as EventClass), eventClass as unknown as EventClass);
    }
    const logged = this.world.commits.slice(this.#since).flatMap(({ events }) => events);
    return logged.map((event) => this.world.read(event, classes.get(event.type)));
  }
}
