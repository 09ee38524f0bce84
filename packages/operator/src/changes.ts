import {
  type BlockedFilter,
  type DatabaseDelivery,
  OperatorRequestError,
  type OperatorStore,
  UnknownHandlerError,
  isStorableText,
  randomUuid,
} from '@framework/core/adapter';
import { DeliveryOperator } from '@framework/events';

import { type OperatorFailure, ask, failureOf, operatorStoreOf, shardTexts } from './answers.js';

const actorMax = 255;
const reasonMax = 1_000;
/** The maximum number of blocked models that one statement changes. */
const stepMax = 1_000;
const limitDefault = 10_000;
const limitMax = 100_000;

/** Who changes something, and why. */
export interface ChangeOptions {
  /** Who makes the change: 1 to 255 characters. */
  readonly by: string;
  /** Why: 1 to 1,000 characters. */
  readonly reason: string;
  /** Only says what would be changed; nothing is changed or recorded. Default false. */
  readonly dryRun?: boolean | undefined;
}

/** A change of the heads of blocked models. */
export interface BulkChangeOptions extends ChangeOptions {
  /** The maximum number of heads to change in each database, 1 to 100,000; each model has one. Default 10,000. */
  readonly limit?: number | undefined;
}

/** What a change did, or would do, in one database. */
export interface DatabaseChange {
  /** The shards of the database, as `group/member`. */
  readonly shards: readonly string[];
  /** How many heads of blocked models; 0 if the change is not about these. */
  readonly count: number;
  /** Whether the limit was reached, so that there may be more: repeat the change. */
  readonly mayBeMore: boolean;
}

/** What became of a change in one database; both when it was made in part. */
interface Made {
  readonly item?: DatabaseChange;
  readonly failure?: OperatorFailure;
}

/** A database that a change concerns. */
interface Concerned {
  readonly database: DatabaseDelivery;
  /** The permanent id there of the handler that the change is about. */
  readonly handlerId: string | undefined;
}

/** What a change did, or would do. */
export interface ChangeAnswer {
  /** Finds the change in the audit; `undefined` for a dry run. */
  readonly changeId: string | undefined;
  readonly count: number;
  readonly mayBeMore: boolean;
  /** The databases that the change concerns, apart from those that failed. */
  readonly items: readonly DatabaseChange[];
  /**
   * Databases in which it was not made, or only partly. It is safe to repeat it, apart from a skip with `dead: false` that names no
   * event: where it was made, it would pass over the next events as well.
   */
  readonly failures: readonly OperatorFailure[];
}

/** A change of one database; it reports as soon as it has changed something, so that a failure does not hide that. */
interface Work {
  readonly dryRun: () => Promise<number>;
  readonly change: (onChanged: (count: number) => void) => Promise<void>;
}

/** A change that is made in each database that it concerns, and recorded there. */
export interface PlannedChange {
  readonly operation: string;
  readonly target: Readonly<Record<string, unknown>>;
  /** The names of the handler that it is about, one of which a database may know. Default: it concerns all databases. */
  readonly names?: readonly string[] | undefined;
  readonly limit?: number;
  /** @param changeId finds the change in the audit */
  readonly workIn: (database: DatabaseDelivery, handlerId: string | undefined, changeId: string) => Work;
}

/**
 * Replays or skips the heads of blocked models that match.
 *
 * @throws OperatorRequestError `operator-request` when the filter is empty, or an option is invalid
 * @throws UnknownHandlerError `unknown-handler` when no database knows the handler
 */
export async function changeBlocked(
  databases: readonly DatabaseDelivery[],
  operation: 'replay' | 'skip',
  filter: BlockedFilter,
  options: BulkChangeOptions,
): Promise<ChangeAnswer> {
  const { limit = limitDefault } = options;
  const { dead, ...fields } = filter;
  if (Object.values(fields).every((field) => field === undefined))
    refuse(
      `${operation} without a filter would change everything: name a handler, an error line, an event type, a model or an event`,
    );
  for (const [name, field] of Object.entries(fields))
    // The filter becomes part of the record, which could not be written.
    if (field !== undefined && !isStorableText(field))
      refuse(`The filter's ${name} contains characters that no database can store: nothing has it`);
  if (!Number.isSafeInteger(limit) || limit < 1 || limit > limitMax)
    refuse(`The limit is ${limit}: pass a whole number from 1 to ${limitMax}`);
  if (operation === 'replay' && dead === false) refuse('Only dead letters are replayed: leave dead out');
  const workIn: PlannedChange['workIn'] = (database, handlerId) => {
    const own = { ...filter, dead: dead ?? true, ...(handlerId !== undefined && { handler: handlerId }) };
    return {
      dryRun: () => database.store.deadLetters.countBlocked(own, limit),
      change: (onChanged) => inSteps(database, operation, { filter: own, limit }, onChanged),
    };
  };
  const names = filter.handler === undefined ? undefined : [filter.handler];
  const planned = { operation, target: { filter, limit }, names, limit, workIn };
  return changeEach(databases, planned, options);
}

/** Each step is committed, and keeps the order of the versions of each model. */
async function inSteps(
  { store }: DatabaseDelivery,
  operation: 'replay' | 'skip',
  { filter, limit }: { readonly filter: BlockedFilter; readonly limit: number },
  onChanged: (count: number) => void,
): Promise<void> {
  let left = limit;
  let after: string | undefined;
  do {
    const place = { limit: Math.min(stepMax, left), after };
    const { count, next } = await store.deadLetters[operation](filter, place);
    onChanged(count);
    left -= count;
    after = next;
  } while (after !== undefined && left > 0);
}

/**
 * Pauses, resumes or retires a handler in every database that knows it.
 *
 * @throws OperatorRequestError `operator-request` when an option is invalid
 * @throws UnknownHandlerError `unknown-handler` when no database knows the handler
 */
export function changeHandler(
  databases: readonly DatabaseDelivery[],
  operation: 'pause' | 'resume' | 'retire',
  handler: string,
  options: ChangeOptions & { readonly discardBlocked?: boolean | undefined },
): Promise<ChangeAnswer> {
  const { discardBlocked = false } = options;
  const isRetirement = operation === 'retire';
  const workIn: PlannedChange['workIn'] = (database, handlerId = handler) => {
    const countDiscarded = async (): Promise<number> =>
      isRetirement && discardBlocked
        ? database.store.deadLetters.countBlocked({ handler: handlerId }, limitMax)
        : 0;
    return {
      dryRun: countDiscarded,
      change: async (onChanged) => {
        const discarded = await countDiscarded();
        const operator = new DeliveryOperator({ deliveries: () => [database] });
        if (isRetirement) await operator.retire(handlerId, { discardBlocked });
        else await operator[operation](handlerId);
        onChanged(discarded);
      },
    };
  };
  const target = isRetirement ? { handler, discardBlocked } : { handler };
  return changeEach(databases, { operation, target, names: [handler], limit: limitMax, workIn }, options);
}

/**
 * Makes a change in each database that it concerns, and records it there.
 *
 * @throws OperatorRequestError `operator-request` when name or reason is missing
 * @throws UnknownHandlerError `unknown-handler` when no database knows the handler
 */
export async function changeEach(
  databases: readonly DatabaseDelivery[],
  planned: PlannedChange,
  { by, reason, dryRun = false }: ChangeOptions,
): Promise<ChangeAnswer> {
  requireText('by', by, actorMax);
  requireText('reason', reason, reasonMax);
  const { names, limit = limitMax } = planned;
  // The answers of all databases come before the first change, so that an unknown name changes and records nothing.
  const known = await ask<Concerned>(databases, async (database) => {
    if (names === undefined) return [{ database, handlerId: undefined }];
    for (const name of names) {
      const handlerId = await database.store.cursors.find(name);
      if (handlerId !== undefined) return [{ database, handlerId }];
    }
    return [];
  });
  if (names !== undefined && known.items.length === 0 && known.failures.length === 0)
    throw new UnknownHandlerError(names.join(', '));
  const changeId = randomUuid();
  const made = await Promise.all(
    known.items.map(async ({ database, handlerId }): Promise<Made> => {
      const work = planned.workIn(database, handlerId, changeId);
      let count = 0;
      try {
        if (dryRun) count = await work.dryRun();
        else {
          const change = {
            changeId,
            operation: planned.operation,
            actor: by,
            reason,
            target: planned.target,
          };
          await recorded(operatorStoreOf(database), change, work, (changed) => (count += changed));
        }
        return { item: itemOf(database, count, limit) };
      } catch (error) {
        const item = count > 0 ? { item: itemOf(database, count, limit) } : {};
        return { ...item, failure: failureOf(database.shards, error) };
      }
    }),
  );
  const items = made.flatMap(({ item }) => (item === undefined ? [] : [item]));
  return {
    changeId: dryRun ? undefined : changeId,
    count: items.reduce((sum, { count }) => sum + count, 0),
    mayBeMore: items.some(({ mayBeMore }) => mayBeMore),
    items,
    failures: [...known.failures, ...made.flatMap(({ failure }) => (failure === undefined ? [] : [failure]))],
  };
}

function itemOf(database: DatabaseDelivery, count: number, limit: number): DatabaseChange {
  return { shards: shardTexts(database.shards), count, mayBeMore: count >= limit };
}

/** Records the intent before the change and the outcome after it: a change without an outcome was cut short. */
async function recorded(
  store: OperatorStore,
  change: Parameters<OperatorStore['beginChange']>[0],
  work: Work,
  onChanged: (count: number) => void,
): Promise<void> {
  await store.beginChange(change);
  let count = 0;
  const add = (changed: number): void => {
    count += changed;
    onChanged(changed);
  };
  try {
    await work.change(add);
  } catch (error) {
    const { code: errorCode, detail: errorText } = failureOf([], error);
    // If this fails, too, the record shows a change without an outcome, which is true; the first error says more.
    await store
      .endChange(change.changeId, { outcome: 'failed', count, errorCode, errorText })
      .catch(() => undefined);
    throw error;
  }
  await store.endChange(change.changeId, { outcome: 'done', count });
}

function requireText(name: string, text: unknown, max: number): void {
  if (typeof text === 'string' && text.trim() !== '' && text.length <= max && isStorableText(text)) return;
  refuse(
    `${name} is missing or too long: say ${name === 'by' ? 'who makes the change' : 'why'}, in 1 to ${max} characters`,
  );
}

/** @throws OperatorRequestError `operator-request` */
export function refuse(message: string): never {
  throw new OperatorRequestError(message);
}
