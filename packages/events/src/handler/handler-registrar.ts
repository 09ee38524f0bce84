import { FrameworkError } from '@framework/core';
import {
  type HandlerCursors,
  HandlerNamesError,
  type HandlerRegistration,
  type KnownHandler,
} from '@framework/core/adapter';

import type { RegisteredHandler } from './event-handler-registry.js';

/** The permanent ids of handlers that were registered, and why the others were not. */
export interface Registered {
  /** The ids by the handlers' names. */
  readonly ids: ReadonlyMap<string, string>;
  /** The last error; `undefined` if every handler is registered. */
  readonly error: unknown;
}

/** Makes the handlers of a process known to one database. */
export class HandlerRegistrar {
  readonly #cursors: HandlerCursors;
  readonly #handlers: readonly RegisteredHandler[];
  readonly #running: ReadonlyMap<string, { readonly names: readonly string[] }>;

  /** @param running the handlers that get events, by their permanent ids */
  constructor(
    cursors: HandlerCursors,
    handlers: readonly RegisteredHandler[],
    running: ReadonlyMap<string, { readonly names: readonly string[] }>,
  ) {
    this.#cursors = cursors;
    this.#handlers = handlers;
    this.#running = running;
  }

  /** The names of the handlers that get no events yet, because the database has not registered them. */
  get missing(): readonly string[] {
    const running = new Set([...this.#running.values()].map(({ names }) => names[0]));
    return this.#handlers.flatMap(({ name }) => (running.has(name) ? [] : [name]));
  }

  async registerMissing(): Promise<Registered> {
    return this.#register(this.#handlers.map(registrationOf), new Set(this.missing));
  }

  /**
   * Registers all handlers as after a restart: one that the database no longer knows is new, and may get a different id. One that it
   * knows keeps its identity, even if the database has lost all names that its code declares.
   */
  async registerAgain(known: readonly KnownHandler[]): Promise<Registered> {
    const knownIds = new Set(known.map(({ handler }) => handler));
    const registrations = this.#handlers.map((handler) => {
      const { aliases, ...rest } = registrationOf(handler);
      const ids = [...this.#running].flatMap(([id, { names }]) =>
        names[0] === handler.name && knownIds.has(id) ? [id] : [],
      );
      return { ...rest, aliases: [...aliases, ...ids] };
    });
    return this.#register(registrations);
  }

  /** Messages about what the database no longer knows of the handlers that run. */
  lossesIn(known: readonly KnownHandler[]): readonly string[] {
    const namesOf = new Map(known.map(({ handler, names }) => [handler, names]));
    return [...this.#running].flatMap(([id, running]) => {
      const names = namesOf.get(id);
      if (names === undefined) {
        const fate = `Handler ${id} was retired, or a failover lost it, while this process was running it`;
        return [
          `${fate}: it is registered again as a new handler, which begins where its startFrom option says`,
        ];
      }
      const lost = running.names.filter((name) => !names.includes(name));
      if (lost.length === 0) return [];
      return [`A failover lost names of handler ${id}, which are registered again: ${lost.join(', ')}`];
    });
  }

  /**
   * Registers each handler by itself, as far as the database can be reached, so that one whose start cannot be found holds up no
   * other. If two of them are the same, none is registered.
   *
   * @param names which of them to register. Default: all
   */
  async #register(
    handlers: readonly HandlerRegistration[],
    names?: ReadonlySet<string>,
  ): Promise<Registered> {
    const ids = new Map<string, string>();
    let failure: unknown;
    try {
      assertDistinct(handlers, await this.#cursors.known());
      for (const handler of handlers.filter(({ name }) => names?.has(name) ?? true)) {
        try {
          ids.set(handler.name, await this.#cursors.register(handler));
        } catch (error) {
          failure = error;
          if (isRefusal(error) || isAway(error)) break;
        }
      }
    } catch (error) {
      failure = error;
    }
    return { ids, error: failure };
  }
}

/** Whether the database will never register the handler, so that asking again cannot help. */
export function isRefusal(error: unknown): boolean {
  return error instanceof HandlerNamesError || FrameworkError.find(error)?.code === 'databases-closed';
}

/** Whether the database is unavailable. */
export function isAway(error: unknown): boolean {
  return FrameworkError.find(error)?.code === 'shard-unavailable';
}

function registrationOf({ name, options }: RegisteredHandler): HandlerRegistration {
  return { name, aliases: options.aliases ?? [], startFrom: options.startFrom ?? 'now' };
}

/** @throws HandlerNamesError when two handlers are the same for the database: one of them would take over what the other one has */
function assertDistinct(handlers: readonly HandlerRegistration[], known: readonly KnownHandler[]): void {
  const owners = new Map<string, string>();
  for (const { name, aliases } of handlers) {
    const names = new Set([name, ...aliases]);
    const id = known.find((each) => each.names.some((former) => names.has(former)))?.handler ?? name;
    const other = owners.get(id);
    if (other !== undefined) throw new HandlerNamesError(name, [id], other);
    owners.set(id, name);
  }
}
