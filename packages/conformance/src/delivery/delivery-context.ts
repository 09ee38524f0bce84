import { type DatabaseRegistry, ShardedId } from '@framework/core';
import {
  type ActionRecord,
  type BlockedAttempt,
  type BlockedFailure,
  type BlockedFilter,
  type BlockedHead,
  type BlockedModel,
  type BlockedPlace,
  type BlockedRow,
  type ChangeSet,
  type Cursor,
  type DeliverableEvent,
  type DeliveryStore,
  type EventRecord,
  type GroupOutcome,
  type KeyRecord,
  type ModelPosition,
  type OperatorStore,
  type SlotLease,
} from '@framework/core/adapter';
import { expect } from 'vitest';

import { Account } from '../account.js';
import { at, firstShard, namespace, principal } from '../suite-context.js';

/** What an adapter passes to the delivery suite: one database, whose time the suite controls. */
export interface DeliveryFixture {
  /** A registry that is ready, with {@link firstShard} as its only shard. */
  readonly databases: DatabaseRegistry;
  /** Lets time pass for the database. */
  pass(durationMs: number): Promise<void>;
  /** Deletes all events from the log, as by mistake; blocked models stay. */
  emptyLog(): Promise<void>;
  /** Empties the log, and removes all handlers, processes, blocked models, idempotency keys and records of operators. */
  clear(): Promise<void>;
  /** Closes the registry and removes everything that the fixture created. */
  close(): Promise<void>;
}

/** A delivery fixture for a database that can have several transactions open at once, so that some commit late. */
export interface ConcurrentDeliveryFixture extends DeliveryFixture {
  /** Begins a transaction in which nothing is written yet. */
  begin(): Promise<HeldTransaction>;
}

/** A transaction that stays open until the suite ends it. */
export interface HeldTransaction {
  /** Writes one event for each version of a model, like all events of the suite, and returns the ids of the events. */
  write(modelId: string, ...versions: readonly number[]): Promise<readonly string[]>;
  /** Makes its events visible to delivery. */
  commit(): Promise<void>;
  /** Discards its events: delivery never sees them. */
  rollback(): Promise<void>;
}

/** The variable part of an event; the rest is the same for all. */
export type WrittenEvent = Pick<EventRecord, 'modelId' | 'modelVersion'> & Partial<EventRecord>;

/** The model and the type of the suite's events. */
const thing = { modelName: 'Thing', type: 'ThingChangedEvent', payload: '{}' } as const;

/** Longer than any test waits, in milliseconds. */
export const never = 1e9;

/** A step that is large enough for all dead letters of a test. */
export const step = { limit: 100 } as const;

/** What the tests of delivery share: the store, and a log to which they write. */
export class DeliveryContext<Fixture extends DeliveryFixture = DeliveryFixture> {
  #fixture: Fixture | undefined;
  #leases: readonly SlotLease[] = [];
  #lostToken = '';

  /** Takes the fixture; must be called before anything else. */
  open(fixture: Fixture): void {
    this.#fixture = fixture;
  }

  /** The adapter's fixture, while the suite runs. */
  get fixture(): Fixture {
    if (this.#fixture === undefined)
      throw new Error('There is no fixture yet: call open() first, and use the context only in tests');
    return this.#fixture;
  }

  get store(): DeliveryStore {
    return at(this.fixture.databases.deliveries(), 0).store;
  }

  /** What operators look for; fails the test when the adapter has nothing for them. */
  get operator(): OperatorStore {
    const { operator } = this.store;
    if (operator === undefined) throw new Error('The store has nothing for operators');
    return operator;
  }

  /** All slots of the log. */
  get slots(): readonly number[] {
    return Array.from({ length: this.store.slotCount }, (_unused, slot) => slot);
  }

  /** All slots of a handler. */
  places(handler = 'notify'): readonly BlockedPlace[] {
    return this.slots.map((slot) => ({ handler, slot }));
  }

  /** The token of a lease that was given back. */
  get lostToken(): string {
    return this.#lostToken;
  }

  /** Registers handlers that start at the beginning. */
  async register(...names: readonly string[]): Promise<void> {
    for (const name of names)
      await this.store.cursors.register({ name, aliases: [], startFrom: 'beginning' });
  }

  /** Commits one event for each version of a model, one after the other, and returns the ids of the events. */
  async write(modelId: string, ...versions: readonly number[]): Promise<readonly string[]> {
    const ids: string[] = [];
    for (const modelVersion of versions) ids.push(...(await this.writeAtOnce({ modelId, modelVersion })));
    return ids;
  }

  /** Commits events in one transaction, and returns their ids. */
  writeAtOnce(...written: readonly WrittenEvent[]): Promise<readonly string[]> {
    return this.writeWith('{}', ...written);
  }

  /** Commits events in one transaction, by an action with these headers, as JSON; returns their ids. */
  writeWith(headers: string, ...written: readonly WrittenEvent[]): Promise<readonly string[]> {
    return this.act({ headers }, ...written);
  }

  /** Commits the events of an action in one transaction, under a key if one is given, and returns their ids. */
  async act(action: GivenAction, ...written: readonly WrittenEvent[]): Promise<readonly string[]> {
    const changeSet = changeSetOf(action, written);
    await this.fixture.databases.transactionManager(firstShard).persist(changeSet);
    return idsOf(changeSet.events);
  }

  /** Writes actions with an event of a model each as one group, and returns their outcomes. */
  actTogether(...actions: readonly GivenAction[]): Promise<readonly GroupOutcome[]> {
    const sets = actions.map((action) => changeSetOf(action, [{ modelId: uuid(), modelVersion: 1 }]));
    return this.fixture.databases.transactionManager(firstShard).persistAll(sets);
  }

  /** The cursor before the first event. */
  async beginning(): Promise<Cursor> {
    const name = 'from the beginning';
    await this.register(name);
    const loaded = await this.store.cursors.load([0]);
    await this.store.cursors.retire(name, { discardBlocked: false });
    return loaded.find(({ handler }) => handler === name)?.cursor ?? '';
  }

  /** Reads batch by batch until nothing more comes. */
  async readOn(
    from: Cursor,
    limit = 1_000,
  ): Promise<{ readonly events: readonly DeliverableEvent[]; readonly cursor: Cursor }> {
    const events: DeliverableEvent[] = [];
    let cursor = from;
    for (let more = true; more;) {
      const batch = await this.store.log.read(this.slots, cursor, limit);
      events.push(...batch.events);
      ({ next: cursor, more } = batch);
    }
    return { events, cursor };
  }

  /** All events of the log. */
  async logged(): Promise<readonly DeliverableEvent[]> {
    return (await this.readOn(await this.beginning())).events;
  }

  /** Lets the process `one` hold all slots of `notify` and `elsewhere`, after another process has given them back. */
  async holdAll(): Promise<readonly SlotLease[]> {
    const handlers = ['notify', 'elsewhere'];
    const { leases } = this.store;
    await this.register(...handlers);
    this.#lostToken = at((await leases.renew('gone', handlers, never)).leases, 0).token;
    await leases.release('gone');
    this.#leases = (await leases.renew('one', handlers, never)).leases;
    return this.#leases;
  }

  /** Holds all slots, commits events of a model, and returns them as they are in the log. */
  async holdWith<Versions extends readonly number[]>(
    modelId: string,
    ...versions: Versions
  ): Promise<{ readonly [Index in keyof Versions]: DeliverableEvent }> {
    await this.holdAll();
    await this.write(modelId, ...versions);
    const events = await this.logged();
    if (events.length !== versions.length)
      throw new Error(`The log has ${events.length} events instead of ${versions.length}`);
    return events as { readonly [Index in keyof Versions]: DeliverableEvent };
  }

  /** The token with which `one` holds a slot, or a lost one if it does not hold the slot. */
  token(handler: string, slot: number): string {
    const lease = this.#leases.find((each) => each.handler === handler && each.slot === slot);
    return lease?.token ?? this.lostToken;
  }

  /** The heads that `notify` is to try or to read on from. */
  heads(limit = 10): Promise<readonly BlockedHead[]> {
    return this.store.blocked.dueHeads(this.places(), limit);
  }

  /** The head that has been due for the longest time; fails the test when there is none. */
  async head(): Promise<BlockedHead> {
    return at(await this.heads(1), 0);
  }

  /** Records an attempt at a head, and returns whether it is recorded. */
  async begin(head: BlockedHead, attempt: BlockedAttempt): Promise<boolean> {
    return at(await this.store.blocked.begin([{ head, attempt }]), 0);
  }

  /** What operators see of the heads of blocked models, oldest first. */
  async rows(filter: BlockedFilter = {}): Promise<readonly BlockedRow[]> {
    return (await this.store.deadLetters.find(filter, step)).items;
  }

  /** What operators see of the oldest head that matches a filter; fails the test when there is none. */
  async row(filter: BlockedFilter = {}): Promise<BlockedRow> {
    return at(await this.rows(filter), 0);
  }

  /** Records failures of events for `notify`. Default: the first call failed, and no attempt was recorded before it. */
  fail(
    ...failures: readonly (Partial<BlockedFailure> & Pick<BlockedFailure, 'event'>)[]
  ): Promise<readonly string[]> {
    return this.store.blocked.fail(
      failures.map((failure) => {
        const handler = failure.handler ?? 'notify';
        return { ...failedOnce, handler, token: this.token(handler, failure.event.slot), ...failure };
      }),
    );
  }

  /** Blocks the models of untried events for `notify`. */
  hold(...events: readonly DeliverableEvent[]): Promise<readonly string[]> {
    return this.store.blocked.hold(
      events.map((event) => ({ handler: 'notify', token: this.token('notify', event.slot), event })),
    );
  }

  /** Moves the model of an event for `notify` to a position, or ends it there. */
  move(
    { slot, modelName, modelId }: DeliverableEvent,
    position: ModelPosition,
    { ends = false, keepsAttempts = false, token = this.token('notify', slot) } = {},
  ): Promise<readonly string[]> {
    const model = { handler: 'notify', slot, modelName, modelId };
    return this.store.blocked.move([{ ...model, position, ends, keepsAttempts, token }]);
  }
}

/** An attempt that counts from its beginning, because it is made alone. */
export function alone(id: string): BlockedAttempt {
  return { id, counted: true };
}

/** An attempt that counts only once it has failed for a reason of its own. */
export function beside(id: string): BlockedAttempt {
  return { id, counted: false };
}

/** The model of an event, for `notify` unless stated otherwise. */
export function modelOf({ slot, modelName, modelId }: DeliverableEvent, handler = 'notify'): BlockedModel {
  return { handler, slot, modelName, modelId };
}

/** The variable part of an action, and its key if it has one. */
type GivenAction = Partial<ActionRecord> & { readonly key?: KeyRecord };

function changeSetOf({ key, ...given }: GivenAction, written: readonly WrittenEvent[]): ChangeSet {
  const events = written.map((event, ordinal) => ({ id: uuid(), ordinal, ...thing, ...event }));
  const what = { id: uuid(), name: 'Write', params: '{}', headers: '{}', startedDate: new Date(0) };
  const action = { ...what, namespace, principal: principal.name, ...given };
  return { shard: firstShard, action, changes: [], events, key };
}

/** A failure of the first call, before which no attempt was recorded; the next one may be made at once. */
const failedOnce = {
  attempt: undefined,
  attempts: 1,
  uncounted: 0,
  error: 'boom',
  retryAfterMs: 0,
  dead: false,
} as const;

/** The contents of an event, without what only a store knows. */
export function contentOf(event: DeliverableEvent): DeliverableEvent {
  return {
    id: event.id,
    slot: event.slot,
    namespace: event.namespace,
    actionId: event.actionId,
    actionName: event.actionName,
    actionParams: event.actionParams,
    principal: event.principal,
    ordinal: event.ordinal,
    modelId: event.modelId,
    modelName: event.modelName,
    modelVersion: event.modelVersion,
    type: event.type,
    payload: event.payload,
    headers: event.headers,
    startedDate: event.startedDate,
    createdDate: event.createdDate,
  };
}

export function idsOf(events: readonly { readonly id: string }[]): readonly string[] {
  return events.map(({ id }) => id);
}

/** Matches an error with this code. */
export function withCode(code: string): unknown {
  return expect.objectContaining({ code });
}

/** A UUID version 7, like those of actions and events. */
export function uuid(): string {
  return ShardedId.generate(Account, firstShard).value;
}
