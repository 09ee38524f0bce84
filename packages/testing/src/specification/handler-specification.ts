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

/** The expected outcome of handling an event; anything left out is not compared. */
export interface ExpectedHandling extends ExpectedEffects {
  /** How often handlers were called with the event, over all deliveries. */
  readonly attempts?: number;
}

/** An event that a specification delivers in a new environment for each expectation. */
export class HandlerSpecification {
  readonly #type: string;
  readonly #open: () => Promise<TestEnvironment>;
  readonly #handle: (environment: TestEnvironment) => Promise<DeliveryReport>;

  /** Created by {@link Specification.whenHandled}. */
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
   * Delivers the event and compares what the handlers' actions committed; the events of these actions are not delivered.
   *
   * @returns the environment, for further checks
   * @throws AssertionError with the difference
   * @throws SpecificationError `dead-letter` when a handler gave up on it, with the handler's last error as the cause
   */
  async thenExpect({ attempts, ...effects }: ExpectedHandling): Promise<TestEnvironment> {
    const { outcome, report } = await this.#run();
    const [deadLetter] = report.deadLetters;
    if (deadLetter !== undefined) throw deadLetterError(deadLetter, report);
    if (attempts !== undefined) assertMatches('attempts', report.attempts.length, attempts);
    await outcome.assertEffects(effects);
    return outcome.environment;
  }

  /** Compares all events that were committed, in their order; returns and throws like {@link thenExpect}. */
  thenEvents(...events: readonly ExpectedEvent[]): Promise<TestEnvironment> {
    return this.thenExpect({ events });
  }

  /** Compares all models that were added or updated, in the order of their first change; returns and throws like {@link thenExpect}. */
  thenModels(...models: readonly ExpectedModel[]): Promise<TestEnvironment> {
    return this.thenExpect({ models });
  }

  /** Delivers the event, which must not lead to a commit; returns and throws like {@link thenExpect}. */
  thenNothing(): Promise<TestEnvironment> {
    return this.thenExpect({ events: [], models: [] });
  }

  /**
   * Delivers the event, on which a handler must give up after all its attempts.
   *
   * @param error the `code`, or the class, of what it throws at the last attempt
   * @throws AssertionError when no handler gives up, or when it throws something else
   */
  async thenThrows(error: ExpectedError): Promise<TestEnvironment> {
    const { outcome, report } = await this.#run();
    const [deadLetter] = report.deadLetters;
    const ending =
      deadLetter === undefined ? { result: undefined } : { error: lastErrorAt(deadLetter, report) };
    const what =
      deadLetter === undefined
        ? `The handling of ${this.#type}`
        : `${deadLetter.handler}, called with ${this.#type},`;
    assertThrown(what, ending, error);
    return outcome.environment;
  }

  async #run(): Promise<{ readonly outcome: Outcome; readonly report: DeliveryReport }> {
    const environment = await this.#open();
    // The event itself is the first commit.
    const outcome = new Outcome(environment, environment.commits.length + 1);
    return { outcome, report: await this.#handle(environment) };
  }
}
