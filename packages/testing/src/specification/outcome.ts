import { type EventClass, eventTypeOf } from '@framework/core';
import { assertMatches } from './expectation/assert-matches.js';
import type { ExpectedEffects, ExpectedEvent } from './expectation/expected.js';
import { Like } from './expectation/like.js';
import type { World } from './world/world.js';

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
   * @throws UnstorableValueException `unstorable-value` when an event cannot be read by the schema that wrote it
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
