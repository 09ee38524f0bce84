import { Outcome } from './action-specification.js';
import { type DeliveryReport, deadLetterError, lastErrorAt } from './delivery-run.js';
import {
  type ExpectedEffects,
  type ExpectedError,
  type ExpectedEvent,
  type ExpectedModel,
  assertMatches,
  assertThrown,
} from './expectation.js';
import type { TestEnvironment } from './test-environment.js';

/** What must have come of handling an event; what is left out is left open. */
export interface ExpectedHandling extends ExpectedEffects {
  /** How often handlers were called with the event, over all deliveries. */
  readonly attempts?: number;
}

/** An event that a specification has handled in an environment of its own, once for each expectation. */
export class HandlerSpecification {
  readonly #type: string;
  readonly #open: () => Promise<TestEnvironment>;
  readonly #handle: (environment: TestEnvironment) => Promise<DeliveryReport>;

  /** Made by {@link Specification.whenHandled}. */
  constructor(
    type: string,
    open: () => Promise<TestEnvironment>,
    handle: (environment: TestEnvironment) => Promise<DeliveryReport>,
  ) {
    this.#type = type;
    this.#open = open;
    this.#handle = handle;
  }

  /**
   * Has the event handled and compares what came of it: what the handlers' actions committed, and nothing that follows.
   *
   * @returns the environment, for whatever else there is to see
   * @throws AssertionError with the difference
   * @throws SpecificationError `dead-letter` when a handler gave it up, with what it threw as the cause
   */
  async thenExpect({ attempts, ...effects }: ExpectedHandling): Promise<TestEnvironment> {
    const { outcome, report } = await this.#run();
    const [deadLetter] = report.deadLetters;
    if (deadLetter !== undefined) throw deadLetterError(deadLetter, report);
    if (attempts !== undefined) assertMatches('attempts', report.attempts.length, attempts);
    await outcome.assertEffects(effects);
    return outcome.environment;
  }

  /** Compares all events that were committed, in their order; as {@link thenExpect}. */
  thenEvents(...events: readonly ExpectedEvent[]): Promise<TestEnvironment> {
    return this.thenExpect({ events });
  }

  /** Compares all models that were added or updated, in the order of their first change; as {@link thenExpect}. */
  thenModels(...models: readonly ExpectedModel[]): Promise<TestEnvironment> {
    return this.thenExpect({ models });
  }

  /** Has the event handled, of which nothing must come; as {@link thenExpect}. */
  thenNothing(): Promise<TestEnvironment> {
    return this.thenExpect({ events: [], models: [] });
  }

  /**
   * Has the event handled, which a handler must give up after all its attempts.
   *
   * @param error the `code`, or the class, of what it throws at the last one
   * @throws AssertionError when none does, or throws something else
   */
  async thenThrows(error: ExpectedError): Promise<TestEnvironment> {
    const { outcome, report } = await this.#run();
    const [deadLetter] = report.deadLetters;
    const ending =
      deadLetter === undefined ? { result: undefined } : { error: lastErrorAt(deadLetter, report) };
    assertThrown(`${deadLetter?.handler ?? 'Every handler'} of ${this.#type}`, ending, error);
    return outcome.environment;
  }

  async #run(): Promise<{ readonly outcome: Outcome; readonly report: DeliveryReport }> {
    const environment = await this.#open();
    // The event itself is the first commit.
    const outcome = new Outcome(environment, environment.commits.length + 1);
    return { outcome, report: await this.#handle(environment) };
  }
}
