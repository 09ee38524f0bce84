import type { HandlerVersions } from '../handler-versions.js';
import { FrameworkError, StaleRecordError } from '@framework/core';
import type { DeliverableEvent } from '@framework/core/adapter';
import { PartialBatchError, type RegisteredHandler, RetryLaterError } from '@framework/events';

import {
  type MemoryBlocked,
  type MemoryMessage,
  type MemorySnapshot,
  type MemoryTables,
  modelKey,
  waits,
} from '../../memory/index.js';
import type { History } from '../history.js';
import type { Scheduler, StepOwner } from '../scheduler.js';
import { AttemptWatch, type CallFailure } from './attempt-watch.js';
import { LeaseWatch } from './lease-watch.js';

/** The maximum number of violations that are reported, because one mistake usually causes many. */
const violationsMax = 10;

/** A process that receives answers from a database. */
interface WatchedProcess {
  readonly owner: StepOwner;
  /** The version of its code. */
  readonly version: number;
}

interface DatabaseWatch {
  readonly tables: MemoryTables;
  readonly leases: LeaseWatch;
  readonly attempts: AttemptWatch;
  /** The last known cursors, by handler and slot. */
  readonly cursors: Map<string, number>;
  /** The log's events by their ids, as far as the log was read. */
  readonly events: Map<string, DeliverableEvent>;
  /** By handler and model: the events that calls have handled, each with the lease of its call. */
  readonly done: Map<string, Map<string, string>>;
  /** The permanent ids of handlers by name, the latest first. Processes may not know yet what a failover has lost. */
  readonly ids: Map<string, readonly string[]>;
  timeline: number;
}

/**
 * Checks the promises of delivery at every moment of a run: only one process at a time works in a slot, and it gives the slot back
 * only after its calls have ended; a process that has lost a slot writes nothing there, a paused handler is not called, and an event is tried the right number of
 * times.
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
    /** The settings of delivery. */
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
        events: new Map(),
        done: new Map(),
        ids: new Map(),
        timeline: tables.delivery.timeline,
      };
    });
  }

  /**
   * Checks the changes that a process's request has made, after it was carried out and before the process knows.
   *
   * @param isLate whether the process gave up waiting for it before: a model that it blocks may be past its events
   */
  answered(
    { owner: { name }, version }: WatchedProcess,
    { operation }: Pick<MemoryMessage, 'operation'>,
    tables: MemoryTables,
    isLate = false,
  ): void {
    const watch = this.#databases.find((each) => each.tables === tables);
    if (watch === undefined) return;
    const leaseOf = ({ handler, slot }: MemoryBlocked): string | undefined =>
      watch.leases.grant(name, handler, slot)?.lease;
    if (operation === 'cursors.register') {
      this.#noteIds(watch, name, version);
      noteCursors(watch);
    } else if (operation === 'deadLetters.replay') watch.attempts.replayed();
    else if (operation === 'leases.renew') watch.leases.renewed(name);
    else if (operation === 'leases.release') watch.leases.released(name);
    else if (operation === 'cursors.load' || operation === 'cursors.known') watch.leases.notePauses();
    else if (operation === 'cursors.save') this.#lookAtCursors(watch, name);
    else if (operation === 'blocked.giveBack') watch.attempts.look(leaseOf);
    else if (mayWrite.has(operation))
      watch.attempts.look(leaseOf, ({ handler, slot, ...model }) => {
        const key = modelKey(handler, model);
        if (isLate) watch.done.delete(key);
        if (watch.leases.holds(name, handler, slot)) return;
        this.#violated(`${name} writes blocked models of ${handler} in slot ${slot}, which it does not hold`);
      });
  }

  /** Records a failover. Everything that the replica does not know as done must be done again. */
  failedOver(tables: MemoryTables, { delivery }: Pick<MemorySnapshot, 'delivery'>): void {
    const watch = this.#databases.find((each) => each.tables === tables);
    if (watch === undefined) return;
    forgetOldHistory(watch);
    noteCursors(watch);
    watch.attempts.look(() => undefined);
    const { names, handlers, log, cursors } = delivery;
    const place = this.#history.nextPlace();
    for (const { name, options } of this.#versions.last) {
      const [id = name] = [name, ...(options.aliases ?? [])].flatMap((each) => names.get(each) ?? []);
      for (const [index, event] of log.entries()) {
        const isPassed = handlers.has(id) && index < (cursors.get(`${id} ${event.slot}`) ?? 0);
        // A blocked model knows better than the cursor which of its events are done.
        const isDone = delivery.blocked.has(modelKey(id, event)) ? !waits(delivery, id, event) : isPassed;
        if (!isDone) this.#history.undone.set(`${name} ${event.id}`, place);
      }
    }
  }

  /** Records that a process requests its leases. */
  asksForLeases({ name }: StepOwner, tables: MemoryTables): void {
    const watch = this.#databases.find((each) => each.tables === tables);
    watch?.leases.asked(name, this.#scheduler.nowMs);
  }

  /** Records that a process has received the answer to its last renewal. */
  getsLeases({ name }: StepOwner, tables: MemoryTables): void {
    const watch = this.#databases.find((each) => each.tables === tables);
    if (watch?.leases.told(name, this.#scheduler) === true) this.#history.count('lost lease');
  }

  /**
   * Checks a call of a handler as it starts.
   *
   * @param call.options the options that the called version of the handler declares
   * @returns a function to call when the call ends by itself, with the errors of the events that are not done
   */
  begins(call: {
    readonly process: StepOwner;
    readonly options: RegisteredHandler['options'];
    readonly eventIds: readonly string[];
  }): (left: CallErrors) => void {
    const { process, options, eventIds } = call;
    const { name } = options;
    const calls = eventIds.flatMap((eventId) => {
      const place = this.#placeOf(eventId);
      // A failover has lost the event.
      if (place === undefined) return [];
      const { watch, event } = place;
      const { slot } = event;
      const ids = watch.ids.get(name) ?? [name];
      const handler = ids.find((id) => watch.leases.grant(process.name, id, slot)) ?? ids[0] ?? name;
      const grant = watch.leases.grant(process.name, handler, slot);
      const what = `${process.name} calls ${handler} with ${eventId} of slot ${slot}`;
      const { nowMs, stepCount } = this.#scheduler;
      if (grant === undefined) {
        this.#violated(`${what}, without ever having had its lease`);
        return [];
      }
      // When a paused process resumes, several things are ready at once, and the end of the lease is only one of them.
      if (watch.tables.delivery.nowMs > grant.untilMs && process.resumedMs !== nowMs)
        this.#violated(`${what}, whose lease has ended`);
      if (grant.endStep !== undefined && stepCount > grant.endStep)
        this.#violated(`${what}, whose lease it has lost`);
      const isTold = stepCount > grant.toldStep;
      if (isTold && watch.leases.wasPaused(handler, grant))
        this.#violated(`${what}, although the handler was paused before it got the lease`);
      // Until the process knows about this lease, it works under the previous one.
      const lease = isTold ? grant.lease : `before ${grant.lease}`;
      const model = modelKey(handler, event);
      if (watch.done.get(model)?.get(eventId) === lease)
        this.#violated(`${what} again, which it has handled under the same lease`);
      const onEnded = watch.leases.called(process.name, handler, slot, lease);
      const onDone = (): void => {
        const done = watch.done.get(model) ?? new Map<string, string>();
        watch.done.set(model, done.set(eventId, lease));
      };
      return [{ eventId, model, onEnded, onDone, onFailed: watch.attempts.begins(handler, eventId, lease) }];
    });
    return ({ errors, isPartial }) => {
      const failedModels = new Set<string>();
      for (const { eventId, model, onEnded, onDone, onFailed } of calls) {
        onEnded();
        if (!errors.has(eventId)) {
          onDone();
          continue;
        }
        // A batch that failed as a whole does not say which event is to blame; behind the first failure of a model, none counts.
        const isFirst = !failedModels.has(model);
        failedModels.add(model);
        const error = errors.get(eventId);
        if (isPartial && isFirst) onFailed(failureOf({}, error));
        if (!isPartial && eventIds.length === 1) onFailed(failureOf(options, error));
      }
    };
  }

  /**
   * Records the ids of handlers, and checks the new ones. A handler that is new to the database must get the registering
   * process's name for it as its id, so that its earlier keys stay valid.
   */
  #noteIds({ ids, tables: { delivery } }: DatabaseWatch, process: string, version: number): void {
    const expected = new Set([...[...ids.values()].flat(), ...this.#versions.namesIn(version)]);
    for (const id of delivery.handlers.keys())
      if (!expected.has(id))
        this.#violated(
          `${process} registers a handler as ${id}, which is not the name of any handler it has`,
        );
    for (const [name, id] of delivery.names) {
      const before = ids.get(name) ?? [];
      if (before[0] === id) continue;
      if (before[0] !== undefined) this.#noteLost(name, [before[0], id], delivery.log);
      ids.set(name, [id, ...before]);
    }
  }

  /** Records the ids under which events so far may have been handled; later events are handled under the last id alone. */
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

  #placeOf(eventId: string): { readonly watch: DatabaseWatch; readonly event: DeliverableEvent } | undefined {
    for (const watch of this.#databases) {
      const event = eventIn(watch, eventId);
      if (event !== undefined) return { watch, event };
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

/** The store's methods that change blocked models under a lease. */
const mayWrite: ReadonlySet<string> = new Set([
  'blocked.fail',
  'blocked.hold',
  'blocked.begin',
  'blocked.move',
]);

/** What a call has left undone. */
export interface CallErrors {
  /** The errors of the events that are not done, by the ids of the events. */
  readonly errors: ReadonlyMap<string, unknown>;
  /** Whether the call has said which events they are. */
  readonly isPartial: boolean;
}

/** What the documentation says about the events of a call that throws. */
export function errorsOf(thrown: unknown, eventIds: readonly string[]): CallErrors {
  const named = thrown instanceof PartialBatchError ? errorsIn(thrown) : new Map<string, unknown>();
  if (named.size > 0 && [...named.keys()].every((id) => eventIds.includes(id)))
    return { errors: named, isPartial: true };
  return { errors: new Map(eventIds.map((id) => [id, thrown])), isPartial: false };
}

function errorsIn({ failures, waiting }: PartialBatchError): ReadonlyMap<string, unknown> {
  const later = waiting.map((id) => [id, new RetryLaterError()] as const);
  return new Map<string, unknown>([
    ...later,
    ...failures.map(({ eventId, error }) => [eventId, error] as const),
  ]);
}

/** How the documentation classifies a failed call. */
function failureOf(
  { whenBatchFails }: Pick<RegisteredHandler['options'], 'whenBatchFails'>,
  thrown: unknown,
): CallFailure {
  if (whenBatchFails === 'wait') return 'outage';
  const known = FrameworkError.find(thrown);
  const isTaken = known instanceof StaleRecordError && known.expectedVersion === 0;
  if (known === undefined || known.code === 'handler-timeout' || isTaken) return 'counts';
  return known.retryable || known.code === 'unknown-shard' || known.code === 'databases-closed'
    ? 'outage'
    : 'final';
}

function eventIn(watch: DatabaseWatch, eventId: string): DeliverableEvent | undefined {
  forgetOldHistory(watch);
  const { events } = watch;
  const { log } = watch.tables.delivery;
  for (const event of events.size < log.length ? log.slice(events.size) : []) events.set(event.id, event);
  return events.get(eventId);
}

/** Records the cursors that are new: nobody has moved them. */
function noteCursors({ cursors, tables: { delivery } }: DatabaseWatch): void {
  for (const [place, cursor] of delivery.cursors) if (!cursors.has(place)) cursors.set(place, cursor);
}

/** Forgets what was known before a failover, because no process wrote the changes that it made. */
function forgetOldHistory(watch: DatabaseWatch): void {
  const { timeline } = watch.tables.delivery;
  if (watch.timeline === timeline) return;
  watch.timeline = timeline;
  watch.events.clear();
  watch.cursors.clear();
}
