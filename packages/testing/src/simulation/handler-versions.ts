import { EventHandlerRegistry, type RegisteredHandler } from '@framework/events';

import type { ProcessSetup, SimulationGiven, SimulationOptions } from './simulation-options.js';

/** The handlers in each version of the code, by their name in the last version. */
export class HandlerVersions {
  readonly #registries: readonly EventHandlerRegistry[];
  readonly #names = new Map<string, string>();

  constructor(options: SimulationOptions<SimulationGiven>, setup: Omit<ProcessSetup, 'version'>) {
    this.#registries = Array.from(
      { length: options.versions ?? 1 },
      (_item, version) => new EventHandlerRegistry(options.handlers?.({ ...setup, version }) ?? []),
    );
    for (const { name, options: declared } of this.last)
      for (const former of declared.aliases ?? []) this.#names.set(former, name);
  }

  /** How many versions there are. */
  get count(): number {
    return this.#registries.length;
  }

  /** The handlers of the last version, which runs at the end. */
  get last(): readonly RegisteredHandler[] {
    return this.#registries[0]?.handlers ?? [];
  }

  /** The current names of the handlers of a version. */
  namesIn(version: number): readonly string[] {
    return this.#registries[version]?.handlers.map(({ name }) => name) ?? [];
  }

  /** The current name of a handler, whatever a version calls it. */
  nameOf(name: string): string {
    return this.#names.get(name) ?? name;
  }

  /** Whether all of the given versions that have a handler want events of this type. */
  areWanted(handler: string, type: string, versions: ReadonlySet<number>): boolean {
    return this.#registries
      .filter((_each, version) => versions.has(version))
      .flatMap(({ handlers }) => handlers.filter(({ name }) => this.nameOf(name) === handler))
      .every(({ eventClasses }) => eventClasses?.has(type) ?? true);
  }
}
