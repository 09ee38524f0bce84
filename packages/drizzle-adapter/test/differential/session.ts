import {
  type Change,
  type ChangeSet,
  CommitOutcomeUnknownException,
  type Cursor,
  type DeliverableEvent,
  FrameworkException,
  type HandlerKey,
  type KeyRecord,
  type ParkedHead,
  type ParkedOutcome,
  type ParkedPlace,
  ShardedId,
  type SlotLease,
} from '@framework/core';
import { seededRandom } from '@framework/testing';
import { Account, home } from '@framework/testing/conformance';
import type { Both, Store, StorePair } from './store-pair.js';

const nobody = '00000000-0000-4000-8000-000000000000';
const handlerNames = ['notify', 'index', 'settle', 'count'];
const processIds = ['one', 'two', 'three'];
const shardTexts = ['(0, 0)', '(0, 1)'];
const keyNames = ['a', 'b', 'c'];
const accountCount = 6;
/** Enough for what one test writes, so that nothing is left out by chance. */
const all = 1_000;

/** What one change set is to contain, whichever store it is written to. */
interface Write {
  readonly actionId: string;
  readonly models: readonly Account[];
  readonly eventCounts: readonly number[];
  readonly key: KeyRecord | undefined;
  /** Whether an earlier run of the same action may have been committed. */
  readonly isRepeat: boolean;
}

/** A sequence of operations on two stores, and what was learnt from them. */
export class Session {
  readonly #stores: StorePair;
  readonly #accounts = Array.from({ length: accountCount }, () => Account.blank(home, new Date(0)));
  /** The versions of the accounts in both stores. */
  readonly #versions = new Map<string, number>();
  readonly #actionIds: string[] = [];
  readonly #events: Both<DeliverableEvent>[] = [];
  readonly #cursors: Both<Cursor>[] = [];
  /** All that were ever given, by handler and slot, the last one last. */
  readonly #leases = new Map<string, Both<string>[]>();
  readonly #tokenNames = new Map<string, string>();
  /** Which operations had which kind of answer. */
  readonly met = new Set<string>();
  #heads: Both<ParkedHead>[] = [];
  #random: () => number = Math.random;
  #attemptCount = 0;

  constructor(stores: StorePair) {
    this.#stores = stores;
  }

  /** Does one operation a little later, whose details the seed chooses. */
  async do(operation: Operation, seed: number): Promise<void> {
    this.#random = seededRandom(seed);
    await this.#stores.pass(1 + (this.#chance(0.05) ? this.#below(15_000) : this.#below(300)));
    await this[operation]();
    for (const answer of this.#stores.met) this.met.add(`${operation}: ${answer}`);
    this.#stores.met.clear();
  }

  /** Lets one process hold all slots of all handlers, so that most of what follows is not refused. */
  async begin(): Promise<void> {
    await this.#stores.ask(({ cursors }) =>
      cursors.register(handlerNames.map((name) => ({ name, aliases: [], startFrom: 'beginning' }))),
    );
    await this.#renew('one', handlerNames);
    this.#stores.met.clear();
  }

  /** Compares all that the stores hold. */
  async compare(): Promise<void> {
    await this.#stores.ask(
      (store) => store.accounts.findAll(),
      (accounts) => inOrder(accounts.map(({ id, version, quota }) => [id.value, version, `${quota}`])),
    );
    await this.find();
    await this.list();
    await this.lag();
    for (const account of this.#accounts) await this.#history(account, all);
  }

  /** Writes one change set. */
  async persist(): Promise<void> {
    const again = this.#chance(0.2) && this.#actionIds.length > 0 ? this.#of(this.#actionIds) : undefined;
    const write = this.#write(again);
    await this.#stores.ask((store) => store.manager.persist(changeSet(write, store)));
    await this.#learn([write]);
  }

  /** Writes a group of change sets, of which some continue others. */
  async persistAll(): Promise<void> {
    const keys = new Set<string>();
    const writes = Array.from({ length: 1 + this.#below(6) }, () => {
      const write = this.#write();
      const isNew = write.key !== undefined && !keys.has(write.key.key);
      if (write.key !== undefined) keys.add(write.key.key);
      for (const { id, version } of write.models) this.#versions.set(id.value, version);
      return isNew ? write : { ...write, key: undefined };
    });
    await this.#stores.ask((store) => writeTogether(writes, store));
    await this.#learn(writes);
  }

  async history(): Promise<void> {
    await this.#history(this.#of(this.#accounts), 1 + this.#below(3));
  }

  async findKey(): Promise<void> {
    const scope = this.#scope();
    await this.#stores.ask(({ manager }) => manager.keys.find(scope));
  }

  async deleteExpired(): Promise<void> {
    const countMax = 1 + this.#below(3);
    await this.#stores.ask(({ manager }) => manager.keys.deleteExpired(countMax));
  }

  async findHandlerKeys(): Promise<void> {
    const [olderThanMs, limit] = [this.#below(20_000), 1 + this.#below(3)];
    // Those of one group are equally old.
    await this.#stores.ask(
      (store) => handlerKeysOf(store, olderThanMs, limit),
      (keys) =>
        inOrder(keys.map(({ namespace, principal, key, source }) => [namespace, principal, key, source])),
    );
  }

  async deleteKeys(): Promise<void> {
    const scopes = this.#some([this.#scope(), this.#scope()]);
    await this.#stores.ask(({ manager }) => manager.keys.delete(scopes));
  }

  async register(): Promise<void> {
    const handlers = this.#some(handlerNames).map((name) => ({
      name,
      aliases: this.#chance(0.3) ? this.#some(handlerNames).filter((alias) => alias !== name) : [],
      startFrom: this.#of([
        'beginning' as const,
        'now' as const,
        { time: new Date(this.#stores.now.getTime() - this.#below(20_000)) },
      ]),
    }));
    await this.#stores.ask(({ cursors }) => cursors.register(handlers));
  }

  async findHandler(): Promise<void> {
    const name = this.#of(handlerNames);
    await this.#stores.ask(({ cursors }) => cursors.find(name));
  }

  async renew(): Promise<void> {
    await this.#renew(this.#of(processIds), this.#chance(0.5) ? handlerNames : this.#some(handlerNames));
  }

  async #renew(processId: string, handlers: readonly string[]): Promise<void> {
    const [leaseMs, shards] = [this.#of([10_000, 30_000]), this.#some(shardTexts)];
    const renewed = await this.#stores.ask(
      ({ leases }) => leases.renew(processId, handlers, leaseMs, shards),
      // Whether it is alone only saves hints, and may be told as it was before.
      ({ leases }) => inOrder(leases.map(({ handler, slot, abandoned }) => [handler, slot, abandoned])),
    );
    if (renewed !== undefined) this.#noteLeases(renewed.memory.leases, renewed.postgres.leases);
  }

  async release(): Promise<void> {
    const processId = this.#of(processIds);
    await this.#stores.ask(({ leases }) => leases.release(processId));
  }

  async list(): Promise<void> {
    await this.#stores.ask(
      ({ leases }) => leases.list(),
      (slots) =>
        inOrder(
          slots.map(({ handler, slot, processId, untilDate }) => [handler, slot, processId, untilDate]),
        ),
    );
  }

  async load(): Promise<void> {
    const slots = this.#some(this.#slots());
    const loaded = await this.#stores.ask(
      ({ cursors }) => cursors.load(slots),
      (cursors) => inOrder(cursors.map(({ handler, slot, paused }) => [handler, slot, paused])),
    );
    if (loaded === undefined || loaded.memory.length === 0) return;
    const { handler, slot, cursor } = this.#of(loaded.memory);
    const same = loaded.postgres.find((each) => each.handler === handler && each.slot === slot);
    if (same !== undefined) this.#cursors.push({ memory: cursor, postgres: same.cursor });
  }

  /** Reads on until nothing more comes. */
  async read(): Promise<void> {
    if (this.#cursors.length === 0) return;
    const cursor = this.#of(this.#cursors);
    const slots = this.#some(this.#slots());
    const limit = 1 + this.#below(4);
    const read = await this.#stores.ask(
      (store) => readAll(store, { slots, cursor: cursor[store.name], limit }),
      ({ events }) => events.map(plain),
    );
    if (read !== undefined) {
      this.#cursors.push({ memory: read.memory.cursor, postgres: read.postgres.cursor });
    }
  }

  async save(): Promise<void> {
    if (this.#cursors.length === 0) return;
    const moves = this.#some(this.#places()).map((place) => ({
      ...place,
      token: this.#token(place),
      cursor: this.#of(this.#cursors),
    }));
    await this.#stores.ask(
      ({ name, cursors }) =>
        cursors.save(moves.map((move) => ({ ...move, token: move.token[name], cursor: move.cursor[name] }))),
      (lost) => this.#named(lost),
    );
  }

  async setPaused(): Promise<void> {
    const [handler, paused] = [this.#of(handlerNames), this.#chance(0.5)];
    await this.#stores.ask(({ cursors }) => cursors.setPaused(handler, paused));
  }

  async hasPassed(): Promise<void> {
    const [handler, event] = [this.#of(handlerNames), this.#event()];
    if (event === undefined) return;
    await this.#stores.ask(({ name, cursors }) => cursors.hasPassed(handler, event[name]));
  }

  async lag(): Promise<void> {
    await this.#stores.ask(
      ({ cursors }) => cursors.lag(),
      (lags) =>
        inOrder(
          lags.map(({ handler, paused, pendingCount, oldestPendingMs, parkedCount, deadCount }) => [
            [handler, paused, pendingCount, Math.round(oldestPendingMs)],
            [parkedCount, deadCount],
          ]),
        ),
    );
  }

  async retire(): Promise<void> {
    const [handler, discardParked] = [this.#of(handlerNames), this.#chance(0.5)];
    await this.#stores.ask(({ cursors }) => cursors.retire(handler, { discardParked }));
  }

  async loadEvents(): Promise<void> {
    const [handler, event] = [this.#of(handlerNames), this.#event()];
    if (event === undefined) return;
    await this.#stores.ask(
      ({ name, log }) => log.load(handler, [event[name]]),
      (events) => events.map(plain),
    );
  }

  async park(): Promise<void> {
    const events = this.#some(this.#events).toSorted((one, other) =>
      one.memory.id < other.memory.id ? -1 : 1,
    );
    const handler = this.#of(handlerNames);
    const parked = events.map((event) => {
      const [suspect, dead] = this.#of([
        [false, false],
        [false, false],
        [true, false],
        [false, true],
      ] as const);
      const retryAfterMs = suspect ? -this.#below(1e6) : this.#of([undefined, this.#below(9_973)]);
      return {
        event,
        token: this.#token({ handler, slot: event.memory.slot }),
        state: {
          handler,
          attempts: this.#below(3),
          uncounted: this.#below(2),
          error: this.#of([undefined, 'boom']),
          retryAfterMs: dead ? undefined : retryAfterMs,
          dead,
          suspect,
        },
      };
    });
    await this.#stores.ask(
      (store) =>
        store.parked.park(
          parked.map(({ event, token, state }) => ({
            ...state,
            event: event[store.name],
            token: token[store.name],
          })),
        ),
      (lost) => this.#named(lost),
    );
  }

  async models(): Promise<void> {
    const [places, limit] = [this.#places(), 1 + this.#below(3)];
    await this.#stores.ask(
      (store) => modelsOf(store, places, limit),
      (models) => inOrder(models.map(({ handler, slot, modelId }) => [handler, slot, modelId])),
    );
  }

  async stillParked(): Promise<void> {
    const models = this.#some(this.#events).map(({ memory: { slot, modelName, modelId } }) => ({
      handler: this.#of(handlerNames),
      slot,
      modelName,
      modelId,
    }));
    await this.#stores.ask(
      ({ parked }) => parked.stillParked(models),
      (found) => [...new Set(inOrder(found.map(({ handler, modelId }) => [handler, modelId])))],
    );
  }

  async dueHeads(): Promise<void> {
    const waitMaxMs = this.#of([undefined, 300_000]);
    const places = this.#places().map((place) => ({ ...place, ...(waitMaxMs && { waitMaxMs }) }));
    const except = this.#chance(0.2) ? this.#heads.map(({ memory: head }) => modelOf(head)) : [];
    const found = await this.#stores.ask(
      ({ parked }) => parked.dueHeads(places, all, { except }),
      (heads) => inOrder(heads.map(headOf)),
    );
    if (found === undefined) return;
    this.#heads = found.memory.flatMap((memory) => {
      const postgres = found.postgres.find((head) => keyOf(head) === keyOf(memory));
      return postgres === undefined ? [] : [{ memory, postgres }];
    });
  }

  async suspectPlaces(): Promise<void> {
    const places = this.#places();
    await this.#stores.ask(
      ({ parked }) => parked.suspectPlaces(places),
      (found) => inOrder(found.map(({ handler, slot }) => [handler, slot])),
    );
  }

  async nextDueMs(): Promise<void> {
    const places = this.#places();
    await this.#stores.ask(
      ({ parked }) => parked.nextDueMs(places),
      (dueMs) => dueMs && Math.round(dueMs),
    );
  }

  async beginAttempt(): Promise<void> {
    const head = this.#head();
    if (head === undefined) return;
    const attempt = this.#attempt();
    await this.#stores.ask(({ name, parked }) => parked.beginAttempt(head[name], attempt));
  }

  async endAttempt(): Promise<void> {
    const head = this.#head();
    if (head === undefined) return;
    const attempt = this.#chance(0.3) ? undefined : this.#attempt();
    const retryAfterMs = this.#below(9_973);
    const outcome: ParkedOutcome = this.#of([
      { kind: 'done' },
      { kind: 'retry', error: 'again', retryAfterMs },
      { kind: 'postponed', error: 'away', retryAfterMs },
      { kind: 'dead', error: 'never' },
    ]);
    await this.#stores.ask(({ name, parked }) => parked.endAttempt(head[name], attempt, outcome));
  }

  async giveBackAttempt(): Promise<void> {
    const head = this.#head();
    if (head === undefined) return;
    const attempt = this.#attempt();
    await this.#stores.ask(({ name, parked }) => parked.giveBackAttempt(head[name], attempt));
  }

  async mayComeAgain(): Promise<void> {
    const events = this.#some(this.#events).map(({ memory: { id } }) => ({
      handler: this.#of(handlerNames),
      eventId: id,
      shard: home,
    }));
    await this.#stores.ask(({ parked }) => parked.mayComeAgain(events));
  }

  async find(): Promise<void> {
    const [filter, limit] = [this.#filter(), 1 + this.#below(4)];
    let after: Both<string> | undefined;
    do {
      const from = after;
      const page = await this.#stores.ask(
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
    const [filter, limit] = [this.#filter(), 1 + this.#below(4)];
    await this.#stores.ask(
      ({ deadLetters }) => deadLetters[change](filter, { limit }),
      ({ count }) => count,
    );
  }

  async #history(account: Account, limit: number): Promise<void> {
    let after: Both<string> | undefined;
    do {
      const from = after;
      const page = await this.#stores.ask(
        ({ name, manager }) =>
          manager.log.findByModel({ name: 'Account', id: account.id.value }, { limit, after: from?.[name] }),
        ({ items, next }) => ({ items: items.map(plain), isLast: next === undefined }),
      );
      after = nextOf(page);
    } while (after !== undefined);
  }

  /** @param again the action that is run again, because nobody knows whether it was committed */
  #write(again?: string): Write {
    const models = this.#some(this.#accounts)
      .slice(0, 3)
      .map((account, index) => {
        const stored = this.#versions.get(account.id.value) ?? 0;
        // One wrong one at most: which of several is told, each store decides by itself.
        const isRight = index > 0 || again !== undefined || this.#chance(0.7);
        const offset = isRight ? 0 : this.#of([-1, 1]);
        return account.variant({
          version: Math.max(1, stored + 1 + offset),
          quota: BigInt(this.#below(100)),
        });
      });
    const eventCounts = models.map(() => this.#below(3));
    if (again !== undefined) return { actionId: again, models, eventCounts, key: undefined, isRepeat: true };
    const actionId = newId();
    this.#actionIds.push(actionId);
    const key = this.#chance(0.4) ? this.#key() : undefined;
    return { actionId, models, eventCounts, key, isRepeat: false };
  }

  #key(): KeyRecord {
    const scope = this.#scope();
    const event = this.#event();
    return {
      ...scope,
      fingerprint: `print ${this.#below(2)}`,
      result: this.#of([undefined, '{"a": null}', '[1]']),
      lifetimeMs: 1 + this.#below(60_000),
      ...(scope.namespace === 'handlers' && {
        source: `0/0 ${event?.memory.id ?? newId()} ${this.#of(handlerNames)}`,
      }),
    };
  }

  #scope(): Pick<KeyRecord, 'namespace' | 'principal' | 'key'> {
    return {
      namespace: this.#of(['clients', 'handlers']),
      principal: 'ada',
      key: this.#of(keyNames),
    };
  }

  /** Learns what the stores hold now of what was to be written. */
  async #learn(writes: readonly Write[]): Promise<void> {
    const stored = await this.#stores.ask(
      ({ accounts }) => accounts.findAll(),
      (accounts) => inOrder(accounts.map(({ id, version }) => [id.value, version])),
    );
    this.#versions.clear();
    for (const { id, version } of stored?.memory ?? []) this.#versions.set(id.value, version);
    for (const write of writes) {
      for (const { id } of eventsOf(write)) {
        const found = await this.#stores.ask(
          ({ log }) => log.find(id),
          (event) => event && plain(event),
        );
        if (found?.memory === undefined || found.postgres === undefined) continue;
        this.#events.push({ memory: found.memory, postgres: found.postgres });
      }
    }
  }

  #noteLeases(inMemory: readonly SlotLease[], onPostgres: readonly SlotLease[]): void {
    for (const { handler, slot, token } of inMemory) {
      const same = onPostgres.find((lease) => lease.handler === handler && lease.slot === slot);
      const known = this.#leases.get(`${handler} ${slot}`) ?? [];
      this.#leases.set(`${handler} ${slot}`, known);
      if (same === undefined || known.at(-1)?.memory === token) continue;
      const name = `${handler} ${slot} ${known.length}`;
      this.#tokenNames.set(token, name).set(same.token, name);
      known.push({ memory: token, postgres: same.token });
    }
  }

  /** Mostly the last token that was given for a place, sometimes one before or none. */
  #token({ handler, slot }: ParkedPlace): Both<string> {
    const known = this.#leases.get(`${handler} ${slot}`) ?? [];
    const none = { memory: nobody, postgres: nobody };
    return this.#chance(0.9) ? (known.at(-1) ?? none) : this.#of([none, ...known]);
  }

  #named(tokens: readonly string[]): readonly string[] {
    return tokens.map((token) => this.#tokenNames.get(token) ?? 'nobody').toSorted();
  }

  #attempt(): { readonly id: string; readonly counted: boolean } {
    if (this.#chance(0.5)) this.#attemptCount++;
    return { id: `attempt ${this.#attemptCount}`, counted: this.#attemptCount % 2 === 0 };
  }

  #filter(): { readonly handler?: string; readonly modelId?: string; readonly dead?: boolean } {
    return {
      ...(this.#chance(0.5) && { handler: this.#of(handlerNames) }),
      ...(this.#chance(0.3) && { modelId: this.#of(this.#accounts).id.value }),
      ...(this.#chance(0.4) && { dead: this.#chance(0.5) }),
    };
  }

  #places(): ParkedPlace[] {
    return this.#some(handlerNames).flatMap((handler) => this.#slots().map((slot) => ({ handler, slot })));
  }

  #slots(): number[] {
    return Array.from({ length: this.#stores.slotCount }, (_unused, slot) => slot);
  }

  #event(): Both<DeliverableEvent> | undefined {
    return this.#events.length === 0 ? undefined : this.#of(this.#events);
  }

  #head(): Both<ParkedHead> | undefined {
    return this.#heads.length === 0 ? undefined : this.#of(this.#heads);
  }

  #below(end: number): number {
    return Math.floor(this.#random() * end);
  }

  #chance(share: number): boolean {
    return this.#random() < share;
  }

  #of<T>(list: readonly T[]): T {
    const item = list[this.#below(list.length)];
    if (list.length === 0) throw new Error('There is nothing to choose from');
    return item as T;
  }

  /** About half of them. */
  #some<T>(list: readonly T[]): T[] {
    return list.filter(() => this.#chance(0.5));
  }
}

/** What can be done, weighted by how often it stands here. */
export const operations = [
  ...Array<'persist'>(4).fill('persist'),
  ...Array<'persistAll'>(3).fill('persistAll'),
  'history',
  'findKey',
  'deleteExpired',
  'findHandlerKeys',
  'deleteKeys',
  ...Array<'register'>(2).fill('register'),
  'findHandler',
  ...Array<'renew'>(5).fill('renew'),
  'release',
  'list',
  ...Array<'load'>(2).fill('load'),
  ...Array<'read'>(2).fill('read'),
  ...Array<'save'>(2).fill('save'),
  'setPaused',
  'hasPassed',
  'lag',
  'retire',
  'loadEvents',
  ...Array<'park'>(4).fill('park'),
  'models',
  'stillParked',
  ...Array<'dueHeads'>(4).fill('dueHeads'),
  'suspectPlaces',
  'nextDueMs',
  ...Array<'beginAttempt'>(4).fill('beginAttempt'),
  ...Array<'endAttempt'>(4).fill('endAttempt'),
  ...Array<'giveBackAttempt'>(2).fill('giveBackAttempt'),
  'mayComeAgain',
  'find',
  'replay',
  'skip',
] as const;

export type Operation = (typeof operations)[number];

function newId(): string {
  return ShardedId.generate(Object, home).value;
}

/** The ids of the events that a write makes are made of its action's, so that both stores get the same. */
function eventsOf({ actionId, models, eventCounts }: Write): ChangeSet['events'] {
  let ordinal = 0;
  return models.flatMap(({ id, version }, index) =>
    Array.from({ length: eventCounts[index] ?? 0 }, () => ({
      id: `${actionId.slice(0, -2)}${(0x10 + ordinal).toString(16)}`,
      ordinal: ordinal++,
      modelId: id.value,
      modelName: 'Account',
      modelVersion: version,
      type: 'TriedEvent',
      payload: `{"text":"ünï \\\\ \\" {,}","version":${version}}`,
    })),
  );
}

function changeSet(write: Write, { accounts: repository }: Store): ChangeSet {
  const { actionId, models, key, isRepeat } = write;
  const changes = models.map((model): Change => {
    const expectedVersion = model.version - 1;
    const kind = expectedVersion === 0 ? 'add' : 'update';
    return { kind, repository, model, expectedVersion, row: repository.encode(model) };
  });
  return {
    shard: home,
    action: {
      id: actionId,
      name: 'TryAction',
      params: `{"a":[1,{"b":null}]}`,
      namespace: 'differential',
      principal: 'tester',
      headers: '{"trace":"1"}',
      startedDate: new Date('2026-01-02T03:04:05.678Z'),
    },
    changes,
    events: eventsOf(write),
    key,
    ...(isRepeat && { unknownCommits: [new CommitOutcomeUnknownException(home, actionId)] }),
  };
}

/** Writes a group, and in turn what it could not hold. */
async function writeTogether(writes: readonly Write[], store: Store): Promise<readonly string[]> {
  const { manager } = store;
  const group = writes.map((write) => changeSet(write, store));
  const lost = new Set<string>();
  const inTurn = async (set: ChangeSet): Promise<string> => {
    const ids = set.changes.map(({ model }) => model.id.value);
    const outcome = ids.some((id) => lost.has(id)) ? 'stale-record' : await codeOf(manager.persist(set));
    if (outcome !== 'written') for (const id of ids) lost.add(id);
    return outcome;
  };
  const outcomes = await manager.persistAll(group).catch((error: unknown) => {
    // Nothing of the whole group is written then.
    if (FrameworkException.find(error) === undefined) throw error;
    return group.map(() => 'alone' as const);
  });
  const codes: string[] = [];
  for (const [index, outcome] of outcomes.entries()) {
    const set = group[index] as ChangeSet;
    const code = typeof outcome === 'string' ? outcome : outcome.code;
    codes.push(code === 'alone' ? await inTurn(set) : code);
    if (codes.at(-1) !== 'written') for (const { model } of set.changes) lost.add(model.id.value);
  }
  return codes;
}

async function codeOf(writing: Promise<string>): Promise<string> {
  try {
    return await writing;
  } catch (error) {
    const known = FrameworkException.find(error);
    if (known === undefined) throw error;
    return known.code;
  }
}

async function readAll(
  { log }: Store,
  {
    slots,
    cursor,
    limit,
  }: { readonly slots: readonly number[]; readonly cursor: Cursor; readonly limit: number },
): Promise<{ readonly events: readonly DeliverableEvent[]; readonly cursor: Cursor }> {
  const events: DeliverableEvent[] = [];
  let place = cursor;
  for (let more = true; more;) {
    const batch = await log.read(slots, place, limit);
    events.push(...batch.events);
    ({ next: place, more } = batch);
  }
  return { events, cursor: place };
}

async function handlerKeysOf(
  { manager: { keys } }: Store,
  olderThanMs: number,
  limit: number,
): Promise<readonly HandlerKey[]> {
  const found: HandlerKey[] = [];
  let after: string | undefined;
  do {
    const page = await keys.findHandlerKeys({ olderThanMs, limit, ...(after !== undefined && { after }) });
    found.push(...page.items);
    after = page.next;
  } while (after !== undefined);
  return found;
}

async function modelsOf(
  { parked }: Store,
  places: readonly ParkedPlace[],
  limit: number,
): Promise<Awaited<ReturnType<Store['parked']['models']>>> {
  const models = [...(await parked.models(places, { limit }))];
  for (let count = models.length; count === limit;) {
    const page = await parked.models(places, { limit, after: models.at(-1) });
    models.push(...page);
    count = page.length;
  }
  return models;
}

function nextOf(page: Both<{ readonly next?: string | undefined }> | undefined): Both<string> | undefined {
  const [inMemory, onPostgres] = [page?.memory.next, page?.postgres.next];
  return inMemory === undefined || onPostgres === undefined
    ? undefined
    : { memory: inMemory, postgres: onPostgres };
}

/** An event without what only one of the stores knows. */
function plain(event: Partial<DeliverableEvent>): unknown {
  const { bytes: _bytes, omitted: _omitted, ...said } = JSON.parse(JSON.stringify(event)) as typeof event;
  return said;
}

function headOf(head: ParkedHead): unknown {
  const { attempts, openCount, uncounted, suspect } = head;
  return [keyOf(head), attempts, openCount, uncounted, suspect];
}

function keyOf({ handler, event }: ParkedHead): string {
  return `${handler} ${event.id}`;
}

function modelOf({ handler, event: { slot, modelName, modelId } }: ParkedHead) {
  return { handler, slot, modelName, modelId };
}

/** In an order that does not depend on the store. */
function inOrder(list: readonly unknown[]): readonly string[] {
  return list.map((item) => JSON.stringify(item)).toSorted();
}
