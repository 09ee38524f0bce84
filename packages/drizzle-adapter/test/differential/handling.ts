import { byModels, inOrder, plain, readAll } from './answers.js';
import { type Known, handlerNames } from './known.js';

const processIds = ['one', 'two', 'three'];
const shardTexts = ['(0, 0)', '(0, 1)'];

/** Handlers, their leases and cursors, and the log that they read. */
export class Handling {
  readonly #known: Known;

  constructor(known: Known) {
    this.#known = known;
  }

  /** Lets one process hold all slots of all handlers, so that most of what follows is not refused. */
  async begin(): Promise<void> {
    for (const name of handlerNames) {
      await this.#known.stores.ask(({ cursors }) =>
        cursors.register({ name, aliases: [], startFrom: 'beginning' }),
      );
    }
    await this.#renew('one', handlerNames);
  }

  async register(): Promise<void> {
    const name = this.#known.of(handlerNames);
    const handler = {
      name,
      aliases: this.#known.chance(0.3)
        ? this.#known.some(handlerNames).filter((alias) => alias !== name)
        : [],
      // Not a time: on PostgreSQL, events of a little earlier may be included.
      startFrom: this.#known.of(['beginning' as const, 'now' as const]),
    };
    await this.#known.stores.ask(({ cursors }) => cursors.register(handler));
  }

  async findHandler(): Promise<void> {
    const name = this.#known.of(handlerNames);
    await this.#known.stores.ask(({ cursors }) => cursors.find(name));
  }

  async renew(): Promise<void> {
    await this.#renew(
      this.#known.of(processIds),
      this.#known.chance(0.5) ? handlerNames : this.#known.some(handlerNames),
    );
  }

  async #renew(processId: string, handlers: readonly string[]): Promise<void> {
    const [leaseMs, shards] = [this.#known.of([10_000, 30_000]), this.#known.some(shardTexts)];
    const tokens = this.#known.some(this.#known.places()).map((place) => this.#known.token(place));
    const renewed = await this.#known.stores.ask(
      ({ leases, name }) =>
        leases.renew(
          processId,
          handlers,
          leaseMs,
          shards,
          tokens.map((token) => token[name]),
        ),
      // `alone` only saves notifications, and may be outdated.
      ({ leases }) =>
        inOrder(leases.map(({ handler, slot, abandoned, surplus }) => [handler, slot, abandoned, surplus])),
    );
    if (renewed !== undefined) this.#known.noteLeases(renewed.memory.leases, renewed.postgres.leases);
  }

  async release(): Promise<void> {
    const processId = this.#known.of(processIds);
    await this.#known.stores.ask(({ leases }) => leases.release(processId));
  }

  async list(): Promise<void> {
    await this.#known.stores.ask(
      ({ leases }) => leases.list(),
      (slots) =>
        inOrder(
          slots.map(({ handler, slot, processId, untilDate }) => [handler, slot, processId, untilDate]),
        ),
    );
  }

  async load(): Promise<void> {
    const slots = this.#known.some(this.#known.slots());
    const loaded = await this.#known.stores.ask(
      ({ cursors }) => cursors.load(slots),
      (cursors) => inOrder(cursors.map(({ handler, slot, paused }) => [handler, slot, paused])),
    );
    if (loaded === undefined || loaded.memory.length === 0) return;
    const { handler, slot, cursor } = this.#known.of(loaded.memory);
    const same = loaded.postgres.find((each) => each.handler === handler && each.slot === slot);
    if (same !== undefined) this.#known.cursors.push({ memory: cursor, postgres: same.cursor });
  }

  async known(): Promise<void> {
    await this.#known.stores.ask(
      ({ cursors }) => cursors.known(),
      (handlers) => inOrder(handlers.map(({ handler, names, paused }) => [handler, inOrder(names), paused])),
    );
  }

  /** Reads until nothing more comes. */
  async read(): Promise<void> {
    if (this.#known.cursors.length === 0) return;
    const cursor = this.#known.of(this.#known.cursors);
    const slots = this.#known.some(this.#known.slots());
    const limit = 1 + this.#known.below(4);
    const read = await this.#known.stores.ask(
      (store) => readAll(store, { slots, cursor: cursor[store.name], limit }),
      ({ events }) => byModels(events),
    );
    if (read !== undefined) {
      this.#known.cursors.push({ memory: read.memory.cursor, postgres: read.postgres.cursor });
    }
  }

  async save(): Promise<void> {
    if (this.#known.cursors.length === 0) return;
    const moves = this.#known.some(this.#known.places()).map((place) => ({
      ...place,
      token: this.#known.token(place),
      cursor: this.#known.of(this.#known.cursors),
    }));
    await this.#known.stores.ask(
      ({ name, cursors }) =>
        cursors.save(moves.map((move) => ({ ...move, token: move.token[name], cursor: move.cursor[name] }))),
      (lost) => this.#known.named(lost),
    );
  }

  async setPaused(): Promise<void> {
    const [handler, paused] = [this.#known.of(handlerNames), this.#known.chance(0.5)];
    await this.#known.stores.ask(({ cursors }) => cursors.setPaused(handler, paused));
  }

  async lag(): Promise<void> {
    await this.#known.stores.ask(
      ({ cursors }) => cursors.lag(),
      (lags) =>
        inOrder(
          lags.map(({ handler, paused, pendingCount, oldestPendingMs, blockedCount, deadCount }) => [
            [handler, paused, pendingCount, Math.round(oldestPendingMs)],
            [blockedCount, deadCount],
          ]),
        ),
    );
  }

  async retire(): Promise<void> {
    const [handler, discardBlocked] = [this.#known.of(handlerNames), this.#known.chance(0.5)];
    await this.#known.stores.ask(({ cursors }) => cursors.retire(handler, { discardBlocked }));
  }

  async loadEvents(): Promise<void> {
    const event = this.#known.event();
    if (event === undefined) return;
    await this.#known.stores.ask(
      ({ name, log }) => log.load([event[name]]),
      (events) => events.map(plain),
    );
  }
}
