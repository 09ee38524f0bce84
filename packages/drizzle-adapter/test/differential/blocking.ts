import type { BlockedHead, BlockedOutcome } from '@framework/core/adapter';
import { firstShard } from '@framework/conformance';
import { headOf, inOrder, keyOf, modelOf, modelsOf, nextOf } from './answers.js';
import { type Known, handlerNames } from './known.js';
import type { Both } from './store-pair.js';

/** Blocked events, the attempts at them, and dead letters. */
export class Blocking {
  readonly #known: Known;
  #heads: Both<BlockedHead>[] = [];
  #attemptCount = 0;

  constructor(known: Known) {
    this.#known = known;
  }

  async block(): Promise<void> {
    const events = this.#known
      .some(this.#known.events)
      .toSorted((one, other) => (one.memory.id < other.memory.id ? -1 : 1));
    const handler = this.#known.of(handlerNames);
    const blocked = events.map((event) => {
      const [suspect, dead] = this.#known.of([
        [false, false],
        [false, false],
        [true, false],
        [false, true],
      ] as const);
      const retryAfterMs = suspect
        ? -this.#known.below(1e6)
        : this.#known.of([undefined, this.#known.below(9_973)]);
      return {
        event,
        token: this.#known.token({ handler, slot: event.memory.slot }),
        state: {
          handler,
          attempts: this.#known.below(3),
          uncounted: this.#known.below(2),
          error: this.#known.of([undefined, 'boom']),
          retryAfterMs: dead ? undefined : retryAfterMs,
          dead,
          suspect,
        },
      };
    });
    await this.#known.stores.ask(
      (store) =>
        store.blocked.block(
          blocked.map(({ event, token, state }) => ({
            ...state,
            event: event[store.name],
            token: token[store.name],
          })),
        ),
      (lost) => this.#known.named(lost),
    );
  }

  async models(): Promise<void> {
    const [places, limit] = [this.#known.places(), 1 + this.#known.below(3)];
    await this.#known.stores.ask(
      (store) => modelsOf(store, places, limit),
      (models) => inOrder(models.map(({ handler, slot, modelId }) => [handler, slot, modelId])),
    );
  }

  async stillBlocked(): Promise<void> {
    const models = this.#known.some(this.#known.events).map(({ memory: { slot, modelName, modelId } }) => {
      const handler = this.#known.of(handlerNames);
      return { model: { handler, slot, modelName, modelId }, token: this.#known.token({ handler, slot }) };
    });
    await this.#known.stores.ask(
      ({ blocked, name }) =>
        blocked.stillBlocked(models.map(({ model, token }) => ({ ...model, token: token[name] }))),
      (found) => [...new Set(inOrder(found.map(({ handler, modelId }) => [handler, modelId])))],
    );
  }

  async dueHeads(): Promise<void> {
    const waitMaxMs = this.#known.of([undefined, 300_000]);
    const places = this.#known.places().map((place) => ({ ...place, ...(waitMaxMs && { waitMaxMs }) }));
    const except = this.#known.chance(0.2) ? this.#heads.map(({ memory: head }) => modelOf(head)) : [];
    const found = await this.#known.stores.ask(
      ({ blocked }) => blocked.dueHeads(places, 1_000, { except }),
      (heads) => inOrder(heads.map(headOf)),
    );
    if (found === undefined) return;
    this.#heads = found.memory.flatMap((memory) => {
      const postgres = found.postgres.find((head) => keyOf(head) === keyOf(memory));
      return postgres === undefined ? [] : [{ memory, postgres }];
    });
  }

  async suspectPlaces(): Promise<void> {
    const places = this.#known.places();
    await this.#known.stores.ask(
      ({ blocked }) => blocked.suspectPlaces(places),
      (found) => inOrder(found.map(({ handler, slot }) => [handler, slot])),
    );
  }

  async nextDueMs(): Promise<void> {
    const places = this.#known.places();
    await this.#known.stores.ask(
      ({ blocked }) => blocked.nextDueMs(places),
      (dueMs) => dueMs && Math.round(dueMs),
    );
  }

  async beginAttempt(): Promise<void> {
    const head = this.#head();
    if (head === undefined) return;
    const attempt = this.#attempt();
    await this.#known.stores.ask(({ name, blocked }) => blocked.beginAttempt(head[name], attempt));
  }

  async endAttempt(): Promise<void> {
    const head = this.#head();
    if (head === undefined) return;
    const attempt = this.#known.chance(0.3) ? undefined : this.#attempt();
    const retryAfterMs = this.#known.below(9_973);
    const outcome: BlockedOutcome = this.#known.of([
      { kind: 'done' },
      { kind: 'retry', error: 'again', retryAfterMs },
      { kind: 'postponed', error: 'away', retryAfterMs },
      { kind: 'dead', error: 'never' },
    ]);
    await this.#known.stores.ask(({ name, blocked }) => blocked.endAttempt(head[name], attempt, outcome));
  }

  async giveBackAttempt(): Promise<void> {
    const head = this.#head();
    if (head === undefined) return;
    const attempt = this.#attempt();
    await this.#known.stores.ask(({ name, blocked }) => blocked.giveBackAttempt(head[name], attempt));
  }

  async mayComeAgain(): Promise<void> {
    const events = this.#known.some(this.#known.events).map(({ memory: { id } }) => ({
      handler: this.#known.of(handlerNames),
      eventId: id,
      shard: firstShard,
    }));
    await this.#known.stores.ask(({ blocked }) => blocked.mayComeAgain(events));
  }

  async find(): Promise<void> {
    const [filter, limit] = [this.#filter(), 1 + this.#known.below(4)];
    let after: Both<string> | undefined;
    do {
      const from = after;
      const page = await this.#known.stores.ask(
        ({ name, deadLetters }) => deadLetters.find(filter, { limit, ...(from && { after: from[name] }) }),
        ({ items, next }) => ({
          items: items.map(({ event, ...row }) => ({ ...row, event: event.id })),
          isLast: next === undefined,
        }),
      );
      after = nextOf(page);
    } while (after !== undefined);
  }

  replay(): Promise<void> {
    return this.#changeDeadLetters('replay');
  }

  skip(): Promise<void> {
    return this.#changeDeadLetters('skip');
  }

  async #changeDeadLetters(change: 'replay' | 'skip'): Promise<void> {
    const [filter, limit] = [this.#filter(), 1 + this.#known.below(4)];
    await this.#known.stores.ask(
      ({ deadLetters }) => deadLetters[change](filter, { limit }),
      ({ count }) => count,
    );
  }

  #attempt(): { readonly id: string; readonly counted: boolean } {
    if (this.#known.chance(0.5)) this.#attemptCount++;
    return { id: `attempt ${this.#attemptCount}`, counted: this.#attemptCount % 2 === 0 };
  }

  #filter(): { readonly handler?: string; readonly modelId?: string; readonly dead?: boolean } {
    return {
      ...(this.#known.chance(0.5) && { handler: this.#known.of(handlerNames) }),
      ...(this.#known.chance(0.3) && { modelId: this.#known.of(this.#known.accounts).id.value }),
      ...(this.#known.chance(0.4) && { dead: this.#known.chance(0.5) }),
    };
  }

  #head(): Both<BlockedHead> | undefined {
    return this.#heads.length === 0 ? undefined : this.#known.of(this.#heads);
  }
}
