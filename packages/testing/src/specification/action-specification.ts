import { assertMatches } from './expectation/assert-matches.js';
import { type Ending, type ExpectedError, assertThrown } from './expectation/assert-thrown.js';
import type { Expected, ExpectedEffects, ExpectedEvent, ExpectedModel } from './expectation/expected.js';
import { Outcome } from './outcome.js';
import type { World } from './world/world.js';

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
