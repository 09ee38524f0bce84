import type { EventClass } from '@framework/core';
import { eventTypeOf, handledEventOf } from '@framework/core/adapter';

import { type MemoryCommit, joinedManager } from '../memory/index.js';
import {
  type Ending,
  type Expected,
  type ExpectedEffects,
  type ExpectedError,
  type ExpectedEvent,
  type ExpectedModel,
  Like,
  assertMatches,
  assertMatchesInSomeOrder,
  assertThrown,
} from './expectation.js';
import type { TestEnvironment } from './test-environment.js';

/** The expected outcome of an action; anything left out is not compared. */
export interface ExpectedOutcome<Result> extends ExpectedEffects {
  readonly result?: Expected<Result>;
}

/** An action that a specification executes in a new environment for each expectation. */
export class ActionSpecification<Result> {
  readonly #name: string;
  readonly #open: () => Promise<TestEnvironment>;
  readonly #execute: (environment: TestEnvironment) => Promise<Result>;
  readonly #isDelivered: boolean;

  /** Created by {@link Specification.when}. */
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

  /** The same, but also delivers events until nothing is pending or due: a whole saga, started by its first action. */
  delivered(): ActionSpecification<Result> {
    return new ActionSpecification({
      name: this.#name,
      open: this.#open,
      execute: this.#execute,
      isDelivered: true,
    });
  }

  /**
   * Executes the action and compares the outcome.
   *
   * @returns the environment, for further checks
   * @throws AssertionError with the difference
   * @throws any error of the action
   */
  async thenExpect(expected: ExpectedOutcome<Result>): Promise<TestEnvironment> {
    const { outcome, ending } = await this.#run();
    if ('error' in ending) throw ending.error;
    if ('result' in expected) assertMatches('results', ending.result, expected.result);
    if (this.#isDelivered) await outcome.environment.deliverAll();
    await outcome.assertEffects(expected);
    return outcome.environment;
  }

  /** Compares the action's result; returns and throws like {@link thenExpect}. */
  thenResult(result: Expected<Result>): Promise<TestEnvironment> {
    return this.thenExpect({ result });
  }

  /** Compares all events that were committed, in their order; returns and throws like {@link thenExpect}. */
  thenEvents(...events: readonly ExpectedEvent[]): Promise<TestEnvironment> {
    return this.thenExpect({ events });
  }

  /** Compares all models that were added or updated, in the order of their first change; returns and throws like {@link thenExpect}. */
  thenModels(...models: readonly ExpectedModel[]): Promise<TestEnvironment> {
    return this.thenExpect({ models });
  }

  /** Executes the action, which must commit nothing; returns and throws like {@link thenExpect}. */
  thenNothing(): Promise<TestEnvironment> {
    return this.thenExpect({ events: [], models: [] });
  }

  /**
   * Executes the action, which must throw and must have written nothing.
   *
   * @param error its `code`, or its class
   * @throws AssertionError when it does not throw, or throws something else
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

/** The outcome of one step in an environment: everything that was committed since it began. */
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
   * @throws UnreadableEventError `unreadable-event` when an event cannot be read by the schema that wrote it
   */
  async assertEffects({ events, models }: ExpectedEffects): Promise<void> {
    const commits = this.environment.commits.slice(this.#since);
    const order = new CommitOrder(this.environment, commits);
    if (events !== undefined) {
      const logged = commits.flatMap((commit) => commit.events.map((event) => ({ commit, event })));
      const classes = this.#classes(events);
      assertMatchesInSomeOrder(
        'events',
        logged.map(({ event }) => this.environment.read(event, classes.get(event.type))),
        events,
        order.ofThese(logged),
      );
    }
    if (models !== undefined) {
      const changed = await this.environment.changedSince(this.#since);
      const first = new Map<string, MemoryCommit>();
      for (const commit of commits)
        for (const name of namesOfChanged(commit)) if (!first.has(name)) first.set(name, commit);
      const inOrder = [...first.values()].map((commit) => ({ commit }));
      assertMatchesInSomeOrder('models', changed, models, order.ofThese(inOrder));
    }
  }

  /**
   * The expected classes and those that handlers want, by their types; events of other classes are compared as they are in the
   * log.
   */
  #classes(expected: readonly ExpectedEvent[]): ReadonlyMap<string, EventClass> {
    const classes = new Map<string, EventClass>();
    for (const { eventClasses } of this.environment.handlers.handlers)
      for (const [type, eventClass] of eventClasses ?? []) classes.set(type, eventClass);
    for (const each of expected) {
      const eventClass = each instanceof Like ? each.type : each.constructor;
      classes.set(eventTypeOf(eventClass as unknown as EventClass), eventClass as unknown as EventClass);
    }
    return classes;
  }
}

/** Finds out which commits follow others in every run, and which do so only by chance, because handlers run in parallel. */
class CommitOrder {
  readonly #commits: readonly MemoryCommit[];
  /** The handler and model for which each action was executed, by the action's id; missing if no handler executed it. */
  readonly #turns = new Map<string, string>();
  /** The id of the event for which a handler executed each action, by the action's id. */
  readonly #causes = new Map<string, string>();
  #earlier: ReadonlyMap<MemoryCommit, ReadonlySet<MemoryCommit>> | undefined;

  constructor(environment: TestEnvironment, commits: readonly MemoryCommit[]) {
    this.#commits = commits;
    const models = new Map(
      environment.events.map(({ id, modelName, modelId }) => [id, `${modelName} ${modelId}`]),
    );
    const keys = environment.databases
      .eachDatabase()
      .flatMap((managers) => [...joinedManager(managers).tables.keys.values()]);
    for (const { actionId, handled } of keys) {
      const event = handled && handledEventOf(handled.source);
      if (event === undefined) continue;
      this.#causes.set(actionId, event.eventId);
      this.#turns.set(actionId, `${event.handler} ${models.get(event.eventId)}`);
    }
  }

  /** Returns a function that says whether the later of two items, in the order of their commits, follows from the earlier one. */
  ofThese(items: readonly { readonly commit: MemoryCommit }[]): (later: number, earlier: number) => boolean {
    return (later, earlier) => {
      const one = items[earlier]?.commit;
      const other = items[later]?.commit;
      if (one === undefined || other === undefined || one === other) return true;
      this.#earlier ??= this.#earlierOfEach();
      return this.#earlier.get(other)?.has(one) ?? true;
    };
  }

  #earlierOfEach(): ReadonlyMap<MemoryCommit, ReadonlySet<MemoryCommit>> {
    const earlier = new Map<MemoryCommit, ReadonlySet<MemoryCommit>>();
    for (const [place, commit] of this.#commits.entries()) {
      const direct = this.#commits.slice(0, place).filter((other) => this.#followsAtOnce(commit, other));
      earlier.set(commit, new Set(direct.flatMap((each) => [each, ...(earlier.get(each) ?? [])])));
    }
    return earlier;
  }

  /** Whether both commits have the same handler and model, the first was caused by the other's event, or both changed one model. */
  #followsAtOnce(commit: MemoryCommit, other: MemoryCommit): boolean {
    if (this.#turns.get(commit.action.id) === this.#turns.get(other.action.id)) return true;
    const cause = this.#causes.get(commit.action.id);
    if (other.events.some(({ id }) => id === cause)) return true;
    const names = new Set(namesOfChanged(other));
    return namesOfChanged(commit).some((name) => names.has(name));
  }
}

function namesOfChanged({ changes }: MemoryCommit): readonly string[] {
  return changes.map(({ table, id }) => `${table} ${id}`);
}
