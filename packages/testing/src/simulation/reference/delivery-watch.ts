import type { HandlerVersions } from '../handler-versions.js';
import { FrameworkError } from '@framework/core';
import type { DeliverableEvent } from '@framework/core/adapter';
import type { RegisteredHandler } from '@framework/events';

import type { MemoryBlocked, MemoryPassage, MemorySnapshot, MemoryTables } from '../../memory/index.js';
import type { History } from '../history.js';
import type { Scheduler, StepOwner } from '../scheduler.js';
import { AttemptWatch, type CallFailure } from './attempt-watch.js';
import { LeaseWatch } from './lease-watch.js';

/** How many violations are told: what is wrong once mostly goes on. */
const violationsMax = 10;

/** A process whose questions are answered. */
interface WatchedProcess {
  readonly owner: StepOwner;
  /** Of its code. */
  readonly version: number;
}

interface DatabaseWatch {
  readonly tables: MemoryTables;
  readonly leases: LeaseWatch;
  readonly attempts: AttemptWatch;
  /** By handler and slot, as they were seen last. */
  readonly cursors: Map<string, number>;
  /** The slots of the events of the log by their ids, as far as it was read. */
  readonly slots: Map<string, number>;
  /** By the names of handlers the permanent ids that they have had, the last one first: processes may not know yet what a failover has lost. */
  readonly ids: Map<string, readonly string[]>;
  timeline: number;
}

/**
 * Watches at every moment of a run what delivery promises: one process at a time works in a slot, who has lost it writes nothing
 * there, a paused handler is left alone, and an event is tried as often as it should be.
 */
export class DeliveryWatch {
  readonly #databases: readonly DatabaseWatch[];
  readonly #versions: Pick<HandlerVersions, 'last' | 'nameOf' | 'namesIn'>;
  readonly #handlers: ReadonlyMap<string, RegisteredHandler>;
  readonly #scheduler: Pick<Scheduler, 'nowMs' | 'stepCount'>;
  readonly #history: Pick<History, 'violations' | 'count' | 'idsOfLost' | 'undone' | 'nextPlace'>;
  #violationCount = 0;

  constructor(options: {
    readonly databases: readonly MemoryTables[];
    readonly versions: Pick<HandlerVersions, 'last' | 'nameOf' | 'namesIn'>;
    /** Those of delivery. */
    readonly settings: { readonly leaseMs: number; readonly attemptsMax: number };
    readonly scheduler: Pick<Scheduler, 'nowMs' | 'stepCount'>;
    readonly history: Pick<History, 'violations' | 'count' | 'idsOfLost' | 'undone' | 'nextPlace'>;
  }) {
    const { databases, versions, settings } = options;
    this.#versions = versions;
    this.#handlers = new Map(versions.last.map((handler) => [handler.name, handler]));
    this.#scheduler = options.scheduler;
    this.#history = options.history;
    const violated = (text: string): void => this.#violated(text);
    this.#databases = databases.map((tables) => {
      const attemptsMaxOf = (id: string): number => {
        const name = [...tables.delivery.names].find(([, each]) => each === id)?.[0] ?? id;
        return this.#handlerOf(name)?.options.retry?.attemptsMax ?? settings.attemptsMax;
      };
      return {
        tables,
        leases: new LeaseWatch(tables.delivery, settings.leaseMs, violated),
        attempts: new AttemptWatch(tables.delivery, attemptsMaxOf, violated),
        cursors: new Map(),
        slots: new Map(),
        ids: new Map(),
        timeline: tables.delivery.timeline,
      };
    });
  }

  /** Looks at what a question of a process has changed, when it was answered and the process does not know yet. */
  answered(
    { owner: { name }, version }: WatchedProcess,
    { operation }: Pick<MemoryPassage, 'operation'>,
    tables: MemoryTables,
  ): void {
    const watch = this.#databases.find((each) => each.tables === tables);
    if (watch === undefined) return;
    const leaseOf = ({ handler, event: { slot } }: MemoryBlocked): string | undefined =>
      watch.leases.grant(name, handler, slot)?.lease;
    if (operation === 'cursors.register') {
      this.#noteIds(watch, name, version);
      noteCursors(watch);
    } else if (operation === 'deadLetters.replay') watch.attempts.replayed();
    else if (operation === 'leases.renew') watch.leases.renewed(name);
    else if (operation === 'leases.release') watch.leases.released(name);
    else if (operation === 'cursors.load' || operation === 'cursors.known') watch.leases.notePauses();
    else if (operation === 'cursors.save') this.#lookAtCursors(watch, name);
    else if (operation === 'blocked.giveBackAttempt') watch.attempts.look(leaseOf);
    else if (mayWrite.has(operation))
      watch.attempts.look(leaseOf, ({ handler, event: { slot } }) => {
        if (watch.leases.holds(name, handler, slot)) return;
        this.#violated(`${name} writes blocked events of ${handler} in slot ${slot}, which it does not hold`);
      });
  }

  /** Takes note of a failover: what the replica does not know to be done is to be done again. */
  failedOver(tables: MemoryTables, { delivery }: Pick<MemorySnapshot, 'delivery'>): void {
    const watch = this.#databases.find((each) => each.tables === tables);
    if (watch === undefined) return;
    forgetOldHistory(watch);
    noteCursors(watch);
    watch.attempts.look(() => undefined);
    const { names, handlers, log, cursors, blocked } = delivery;
    const place = this.#history.nextPlace();
    for (const { name, options } of this.#versions.last) {
      const [id = name] = [name, ...(options.aliases ?? [])].flatMap((each) => names.get(each) ?? []);
      for (const [index, event] of log.entries()) {
        const isPassed = handlers.has(id) && index < (cursors.get(`${id} ${event.slot}`) ?? 0);
        if (!isPassed || blocked.has(`${id} ${event.id}`))
          this.#history.undone.set(`${name} ${event.id}`, place);
      }
    }
  }

  /** Takes note that a process asks for its leases. */
  asksForLeases({ name }: StepOwner, tables: MemoryTables): void {
    const watch = this.#databases.find((each) => each.tables === tables);
    watch?.leases.asked(name, this.#scheduler.nowMs);
  }

  /** Takes note that a process knows what its last renewal has given it. */
  getsLeases({ name }: StepOwner, tables: MemoryTables): void {
    const watch = this.#databases.find((each) => each.tables === tables);
    if (watch?.leases.told(name, this.#scheduler) === true) this.#history.count('lost lease');
  }

  /**
   * Looks at a call of a handler that begins.
   *
   * @param call.options what the handler declares in the version of the code that is called
   * @returns what is to be called with what it throws, when it fails
   */
  begins(call: {
    readonly process: StepOwner;
    readonly options: RegisteredHandler['options'];
    readonly eventIds: readonly string[];
  }): (thrown: unknown) => void {
    const { process, options, eventIds } = call;
    const { name } = options;
    const onFailed = eventIds.flatMap((eventId) => {
      const place = this.#placeOf(eventId);
      // A failover has lost the event.
      if (place === undefined) return [];
      const { watch, slot } = place;
      const ids = watch.ids.get(name) ?? [name];
      const handler = ids.find((id) => watch.leases.grant(process.name, id, slot)) ?? ids[0] ?? name;
      const grant = watch.leases.grant(process.name, handler, slot);
      const what = `${process.name} calls ${handler} with ${eventId} of slot ${slot}`;
      const { nowMs, stepCount } = this.#scheduler;
      if (grant === undefined) {
        this.#violated(`${what}, of which it never had the lease`);
        return [];
      }
      // What has just stood still comes to itself with several things at once, of which the end of the lease is one.
      if (watch.tables.delivery.nowMs > grant.untilMs && process.resumedMs !== nowMs)
        this.#violated(`${what}, whose lease has ended`);
      if (grant.endStep !== undefined && stepCount > grant.endStep)
        this.#violated(`${what}, whose lease it has no more`);
      const isTold = stepCount > grant.toldStep;
      if (isTold && watch.leases.wasPaused(handler, grant))
        this.#violated(`${what}, although the handler was paused before it got the lease`);
      // It works by the lease before while it does not know of this one.
      const lease = isTold ? grant.lease : `before ${grant.lease}`;
      return watch.attempts.begins(handler, eventId, { lease, eventCount: eventIds.length });
    });
    return (thrown) => {
      for (const failed of onFailed) failed(failureOf(options, thrown));
    };
  }

  /** The id of a handler that is new to the database is the name that the registering process has for it, so that its earlier keys still hold. */
  #noteIds({ ids, tables: { delivery } }: DatabaseWatch, process: string, version: number): void {
    const expected = new Set([...[...ids.values()].flat(), ...this.#versions.namesIn(version)]);
    for (const id of delivery.handlers.keys())
      if (!expected.has(id))
        this.#violated(`${process} registers a handler as ${id}, which none of its own is called`);
    for (const [name, id] of delivery.names) {
      const before = ids.get(name) ?? [];
      if (before[0] === id) continue;
      if (before[0] !== undefined) this.#noteLost(name, [before[0], id], delivery.log);
      ids.set(name, [id, ...before]);
    }
  }

  /** What comes later is handled under the last id alone. */
  #noteLost(name: string, ids: readonly string[], log: readonly DeliverableEvent[]): void {
    const { idsOfLost } = this.#history;
    for (const { id } of log) {
      const key = `${this.#versions.nameOf(name)} ${id}`;
      idsOfLost.set(key, new Set([...(idsOfLost.get(key) ?? []), ...ids]));
    }
  }

  #lookAtCursors(watch: DatabaseWatch, process: string): void {
    forgetOldHistory(watch);
    const { leases, cursors } = watch;
    const { delivery } = watch.tables;
    for (const [place, cursor] of delivery.cursors) {
      const before = cursors.get(place);
      if (before === cursor) continue;
      cursors.set(place, cursor);
      const [handler = '', slot = ''] = place.split(' ');
      if (before === undefined) continue;
      if (!leases.holds(process, handler, Number(slot)))
        this.#violated(`${process} moves the cursor of ${handler} in slot ${slot}, which it does not hold`);
      if (cursor < before) this.#violated(`${process} moves the cursor of ${handler} back in slot ${slot}`);
    }
  }

  #placeOf(eventId: string): { readonly watch: DatabaseWatch; readonly slot: number } | undefined {
    for (const watch of this.#databases) {
      const slot = slotIn(watch, eventId);
      if (slot !== undefined) return { watch, slot };
    }
    return undefined;
  }

  #handlerOf(name: string): RegisteredHandler | undefined {
    return this.#handlers.get(this.#versions.nameOf(name));
  }

  #violated(text: string): void {
    if (this.#violationCount++ < violationsMax)
      this.#history.violations.push(`${text} (at ${this.#scheduler.nowMs.toFixed(1)} ms)`);
  }
}

/** What of the store changes blocked events under a lease. */
const mayWrite: ReadonlySet<string> = new Set([
  'blocked.block',
  'blocked.beginAttempt',
  'blocked.endAttempt',
]);

/** What the documents say of how a call ended. */
function failureOf({ whenBatchFails }: RegisteredHandler['options'], thrown: unknown): CallFailure {
  if (whenBatchFails === 'wait') return 'outage';
  const known = FrameworkError.find(thrown);
  if (known === undefined || known.code === 'handler-timeout') return 'counts';
  return known.retryable || known.code === 'unknown-shard' ? 'outage' : 'final';
}

function slotIn(watch: DatabaseWatch, eventId: string): number | undefined {
  forgetOldHistory(watch);
  const { slots } = watch;
  const { log } = watch.tables.delivery;
  for (const event of slots.size < log.length ? log.slice(slots.size) : []) slots.set(event.id, event.slot);
  return slots.get(eventId);
}

/** A cursor that is new was moved by nobody. */
function noteCursors({ cursors, tables: { delivery } }: DatabaseWatch): void {
  for (const [place, cursor] of delivery.cursors) if (!cursors.has(place)) cursors.set(place, cursor);
}

/** What a failover has changed was written by nobody. */
function forgetOldHistory(watch: DatabaseWatch): void {
  const { timeline } = watch.tables.delivery;
  if (watch.timeline === timeline) return;
  watch.timeline = timeline;
  watch.slots.clear();
  watch.cursors.clear();
}
