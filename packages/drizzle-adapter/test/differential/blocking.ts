import { type BlockedHead, positionAfter } from '@framework/core/adapter';
import { firstShard } from '@framework/conformance';
import { headOf, inOrder, keyOf, modelOf, modelsOf, nextOf, plain } from './answers.js';
import { type Known, handlerNames } from './known.js';
import type { Both } from './store-pair.js';

/** Blocked models, the attempts at their heads, and dead letters. */
export class Blocking {
  readonly #known: Known;
  #heads: Both<BlockedHead>[] = [];
  #attemptCount = 0;

  constructor(known: Known) {
    this.#known = known;
  }

  /** Records failures without an attempt: of untried events, and of heads. */
  async fail(): Promise<void> {
    const handler = this.#known.of(handlerNames);
    const failed = this.#oneOfEachModel().map((event) => {
      const token = this.#known.token({ handler, slot: event.memory.slot });
      return {
        event,
        token,
        state: { handler, attempt: undefined, ...this.#failure(), doneIds: this.#doneIds() },
      };
    });
    await this.#known.stores.ask(
      ({ blocked, name }) =>
        blocked.fail(
          failed.map(({ event, token, state }) => ({ ...state, event: event[name], token: token[name] })),
        ),
      (lost) => this.#known.named(lost),
    );
  }

  /** Records that the head of a model has failed, with the counts it had when it was taken. Left out once the model has ended. */
  async failHead(): Promise<void> {
    const head = this.#head();
    if (head?.memory.event === undefined) return;
    const row = await this.#known.stores.ask(
      ({ deadLetters }) => deadLetters.headOf(modelOf(head.memory)),
      (found) => found !== undefined,
    );
    if (row?.memory === undefined) return;
    const id = this.#known.chance(0.3) ? undefined : this.#attempt();
    const attempt = id === undefined ? undefined : { id, counted: true };
    const isPostponed = this.#known.chance(0.5);
    const state = { ...this.#failure(), doneIds: this.#doneIds(), attempt };
    await this.#known.stores.ask(
      async ({ name, blocked }) => {
        const { handler, token, event, attempts, uncounted } = head[name];
        if (event === undefined) throw new Error('The event is only in memory');
        const before = isPostponed ? { attempts, uncounted } : undefined;
        return blocked.fail([{ ...state, handler, token, event, before }]);
      },
      (lost) => this.#known.named(lost),
    );
  }

  async hold(): Promise<void> {
    const handler = this.#known.of(handlerNames);
    const held = this.#oneOfEachModel().map((event) => ({
      event,
      token: this.#known.token({ handler, slot: event.memory.slot }),
    }));
    await this.#known.stores.ask(
      ({ blocked, name }) =>
        blocked.hold(held.map(({ event, token }) => ({ handler, event: event[name], token: token[name] }))),
      (lost) => this.#known.named(lost),
    );
  }

  async models(): Promise<void> {
    const [places, limit] = [this.#known.places(), 1 + this.#known.below(3)];
    await this.#known.stores.ask(
      (store) => modelsOf(store, places, limit),
      (models) =>
        inOrder(models.map(({ handler, slot, modelId, hasFailed }) => [handler, slot, modelId, hasFailed])),
    );
  }

  async dueHeads(): Promise<void> {
    const waitMaxMs = this.#known.of([undefined, 300_000]);
    const places = this.#known.places().map((place) => ({ ...place, ...(waitMaxMs && { waitMaxMs }) }));
    const except = this.#known.chance(0.2) ? this.#heads.map(({ memory: head }) => modelOf(head)) : [];
    const found = await this.#known.stores.ask(
      ({ blocked }) => blocked.dueHeads(places, 1_000, { except }),
      (heads) => inOrder(heads.map((head) => headOf(head, this.#known))),
    );
    if (found === undefined) return;
    this.#heads = found.memory.flatMap((memory) => {
      const postgres = found.postgres.find((head) => keyOf(head) === keyOf(memory));
      return postgres === undefined ? [] : [{ memory, postgres }];
    });
  }

  async nextDueMs(): Promise<void> {
    const places = this.#known.places();
    await this.#known.stores.ask(
      ({ blocked }) => blocked.nextDueMs(places),
      (dueMs) => dueMs && Math.round(dueMs),
    );
  }

  async begin(): Promise<void> {
    const attempts = this.#known.some(this.#heads).map((head) => {
      return { head, attempt: { id: this.#attempt(), counted: this.#known.chance(0.5) } };
    });
    const begun = await this.#known.stores.ask(({ name, blocked }) =>
      blocked.begin(attempts.map(({ head, attempt }) => ({ head: head[name], attempt }))),
    );
    for (const isBegun of begun?.memory ?? []) this.#known.stores.met.add(`${isBegun}`);
  }

  async giveBack(): Promise<void> {
    const head = this.#head();
    if (head === undefined) return;
    const attempt = { id: this.#attempt(), counted: true };
    await this.#known.stores.ask(({ name, blocked }) => blocked.giveBack(head[name], attempt));
  }

  /** Reads some models from where they were taken. */
  async read(): Promise<void> {
    const [heads, limit] = [this.#known.some(this.#heads), 1 + this.#known.below(4)];
    await this.#known.stores.ask(
      ({ name, blocked }) =>
        blocked.read(
          heads.map((head) => head[name]),
          limit,
        ),
      (found) => found.map((events) => events.map(plain)),
    );
  }

  /** Moves models to the events of others, and to their own, so that some moves come late. */
  async move(): Promise<void> {
    const moves = this.#known.some(this.#heads).map(({ memory: head }) => {
      const position =
        this.#known.chance(0.3) || head.event === undefined ? head.position : positionAfter(head.event);
      const ends = this.#known.chance(0.3);
      return { move: { ...modelOf(head), position, ends }, token: this.#known.token(head) };
    });
    await this.#known.stores.ask(
      ({ name, blocked }) => blocked.move(moves.map(({ move, token }) => ({ ...move, token: token[name] }))),
      (lost) => this.#known.named(lost),
    );
  }

  async mayComeAgain(): Promise<void> {
    const events = this.#known.some(this.#known.events).map(({ memory: { id } }) => ({
      handler: this.#known.of(handlerNames),
      eventId: id,
      shard: firstShard,
    }));
    await this.#known.stores.ask(({ blocked }) => blocked.mayComeAgain(events));
  }

  async headOf(): Promise<void> {
    const event = this.#known.event();
    if (event === undefined) return;
    const { slot, modelName, modelId } = event.memory;
    const model = { handler: this.#known.of(handlerNames), slot, modelName, modelId };
    await this.#known.stores.ask(
      ({ deadLetters }) => deadLetters.headOf(model),
      (row) => row && { ...row, event: plain(row.event) },
    );
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

  /** Some events, one of each model, in the order in which rows that are blocked at once are found. */
  #oneOfEachModel(): Known['events'] {
    const some = this.#known.some(this.#known.events);
    return [...new Map(some.map((event) => [event.memory.modelId, event])).values()].toSorted((one, other) =>
      one.memory.modelId < other.memory.modelId ? -1 : 1,
    );
  }

  #failure() {
    const dead = this.#known.chance(0.2);
    return {
      attempts: this.#known.below(4),
      uncounted: this.#known.below(2),
      error: this.#known.of([undefined, 'boom', 'again']),
      retryAfterMs: dead ? undefined : this.#known.of([0, this.#known.below(9_973)]),
      dead,
    };
  }

  #doneIds(): readonly string[] {
    return this.#known.chance(0.7) ? [] : this.#known.some(this.#known.events).map(({ memory }) => memory.id);
  }

  /** The id of an attempt, often the same as before. */
  #attempt(): string {
    if (this.#known.chance(0.3)) this.#attemptCount++;
    return `attempt ${this.#attemptCount}`;
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
