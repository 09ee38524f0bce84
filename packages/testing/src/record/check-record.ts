import { setTimeout as delay } from 'node:timers/promises';

import type { CallRecorder, RecordedCall } from './call-recorder.js';
import { checkDeliveries } from './check-deliveries.js';
import {
  type DatabaseRecord,
  type RecordedAction,
  RecordedDatabase,
  type RecordedEvent,
  type Rows,
} from './database-record.js';
import type { DeliveryRecorder } from './delivery-record.js';

/** The options of {@link checkRecord}: what is compared, and what else must hold. */
export interface RecordCheck<Answer> {
  /** What clients were told, after `settle`. */
  readonly recorder: CallRecorder<Answer>;
  /**
   * The recorder of handler calls, if the handlers run in the process of the test. Default: deliveries are not
   * compared.
   */
  readonly deliveries?: DeliveryRecorder;
  /**
   * The PostgreSQL databases of all shards, each once, as connection URLs of a user who may read the schema `eventlog`
   * and the tables of the models. Their logs are read completely.
   */
  readonly databases: readonly string[];
  /** The tables of the models, by model name in the log, such as `{ Book: 'books' }`. */
  readonly tables: Readonly<Record<string, string>>;
  /**
   * Whether the log may contain an action that was neither recorded nor executed by a handler, such as one from before
   * the test. Default: it may not.
   */
  readonly mayBeThere?: (action: RecordedAction) => boolean;
  /** Whether there may be dead letters. Default: no. */
  readonly deadLettersMayStay?: boolean;
  /**
   * How long handlers may take to come to rest. A handler that wants none of the committed events saves its cursor only
   * every 30 times `cursor-save-ms`, which is 30 seconds unless the service is configured otherwise. Default: 60,000 ms.
   */
  readonly restWithinMs?: number;
  /**
   * Checks invariants of your own, and returns what is wrong as texts. An error that it throws counts as one of them.
   */
  readonly check?: (state: RecordState<Answer>) => readonly string[] | Promise<readonly string[]>;
}

/** The state after all calls, for invariants of your own. */
export interface RecordState<Answer> {
  readonly calls: readonly RecordedCall<Answer>[];
  /** The events of all databases, one database after the other, in the order of each log. */
  readonly events: readonly RecordedEvent[];
  /** Returns the rows of a query in all databases together. */
  readonly rows: (text: string, values?: readonly unknown[]) => Promise<Rows>;
}

const restDefaultMs = 60_000;
const restPollMs = 100;

/**
 * Compares what clients were told with the contents of the databases. Call it when the faults have ended and the
 * recorder is settled. It waits until delivery is at rest, and returns everything that is wrong, in no particular
 * order; an empty list means that all is well.
 *
 * - Each successful call has its effect exactly once, a refused call has none, and there is no effect that nobody asked
 * for.
 * - The versions of a model have no gaps, each is made by one action, and the model's row has the last one.
 * - Every handler has reached the end of the log without dead letters. If its calls were recorded, it received every
 * event that it wants and no others, repeats were identical, and the events of a model came in order.
 *
 * Idempotency keys must not expire during the test, and partitions of the log must not be dropped.
 *
 * ```ts
 * await recorder.settle();
 * expect(await checkRecord({ recorder, databases: [url], tables: { Book: 'books' } })).toEqual([]);
 * ```
 *
 * @throws the error of a database that cannot be queried
 */
export async function checkRecord<Answer>(options: RecordCheck<Answer>): Promise<readonly string[]> {
  const databases: RecordedDatabase[] = [];
  try {
    for (const url of options.databases) databases.push(await RecordedDatabase.open(url));
    const handlers = options.deliveries?.handlers.map(({ name }) => name) ?? [];
    const waiting = await stillWaiting(databases, handlers, options.restWithinMs ?? restDefaultMs);
    const records = await Promise.all(databases.map((database) => database.read(options.tables)));
    return [
      ...options.recorder.violations,
      ...waiting,
      ...checkCalls(options, records),
      ...records.flatMap((record) => checkVersions(record)),
      ...(options.deliveries === undefined ? [] : checkRecordedDeliveries(options.deliveries, records)),
      ...(options.deadLettersMayStay === true ? [] : records.flatMap(({ deadLetters }) => deadLetters)),
      ...(await ownViolations(options, databases, records)),
    ];
  } finally {
    await Promise.all(databases.map((database) => database.close()));
  }
}

/** What handlers have not done when their time is up. */
async function stillWaiting(
  databases: readonly RecordedDatabase[],
  handlers: readonly string[],
  withinMs: number,
): Promise<readonly string[]> {
  const endMs = performance.now() + withinMs;
  for (;;) {
    const waiting = (await Promise.all(databases.map((database) => database.waiting(handlers)))).flat();
    if (waiting.length === 0) return [];
    if (performance.now() > endMs) return waiting.map((what) => `${what} after ${withinMs} ms`);
    await delay(restPollMs);
  }
}

function checkCalls<Answer>(
  { recorder, mayBeThere = () => false }: RecordCheck<Answer>,
  records: readonly DatabaseRecord[],
): readonly string[] {
  const keys = records.flatMap((record) => record.keys);
  const byKey = Map.groupBy(keys, ({ key, principal, namespace }) =>
    JSON.stringify([key, principal, namespace]),
  );
  const actionsOf = new Map<string, Set<string>>();
  for (const { key, actionId } of keys) actionsOf.set(key, (actionsOf.get(key) ?? new Set()).add(actionId));
  const logged = new Set(records.flatMap(({ actions }) => actions.map(({ id }) => id)));
  const known = new Set(recorder.calls.flatMap(({ key }) => [...(actionsOf.get(key) ?? [])]));
  const unasked = records
    .flatMap(({ actions }) => actions)
    .filter(({ id, headers }) => !known.has(id) && headers['causation-id'] === undefined);
  return [
    ...recorder.calls.flatMap((call) => faultsOf(call, actionsOf.get(call.key)?.size ?? 0)),
    ...[...byKey.values()].flatMap((same) => doubledKey(same)),
    ...keys
      .filter(({ actionId }) => !logged.has(actionId))
      .map(({ key, actionId }) => `the key ${key} belongs to the action ${actionId}, which no log holds`),
    ...records.flatMap(({ doubled, place }) =>
      doubled.map((action) => `${action} is committed more than once in ${place}`),
    ),
    ...unasked
      .filter((action) => !mayBeThere(action))
      .map(({ id, name }) => `${name} ${id} was committed, although no call asked for it`),
  ];
}

function faultsOf({ name, key, outcome, says }: RecordedCall, effectCount: number): readonly string[] {
  const what = `${name} (${key})`;
  if (outcome === 'unknown') return [`${what} has no known outcome: settle the recorder before the check`];
  if (outcome === 'ok' && effectCount === 0) return [`${what} was ok but has no effect`];
  if (outcome === 'refused' && effectCount > 0) return [`${what} was refused (${says}) but has an effect`];
  return [];
}

function doubledKey(same: readonly { readonly key: string; readonly actionId: string }[]): readonly string[] {
  const count = new Set(same.map(({ actionId }) => actionId)).size;
  return count > 1 ? [`the key ${same[0]?.key ?? ''} has ${count} effects`] : [];
}

/**
 * Checks that the versions of each model start at 1 and have no gaps, that one action made each, and that the row has
 * the last one.
 */
function checkVersions({ events, rowVersions, place }: DatabaseRecord): readonly string[] {
  const byModel = new Map<string, Map<string, Map<number, Set<string>>>>();
  for (const { modelName, modelId, modelVersion, actionId } of events) {
    const models = byModel.get(modelName) ?? new Map<string, Map<number, Set<string>>>();
    const versions = models.get(modelId) ?? new Map<number, Set<string>>();
    versions.set(modelVersion, (versions.get(modelVersion) ?? new Set()).add(actionId));
    byModel.set(modelName, models.set(modelId, versions));
  }
  return [...rowVersions].flatMap(([modelName, rows]) => {
    const models = byModel.get(modelName) ?? new Map<string, Map<number, Set<string>>>();
    const faults: string[] = [];
    for (const [id, versions] of models) {
      const what = `${modelName} ${id} in ${place}`;
      const numbers = [...versions.keys()].sort((one, other) => one - other);
      for (const [index, version] of numbers.entries()) {
        if (version !== index + 1) {
          faults.push(`${what}: version ${version} follows ${numbers[index - 1] ?? 0}`);
          break;
        }
        const count = versions.get(version)?.size ?? 0;
        if (count > 1) faults.push(`${what}: ${count} actions made version ${version}`);
      }
      const row = rows.get(id);
      const last = numbers.at(-1);
      if (row !== undefined && row !== last)
        faults.push(`${what}: the row has version ${row}, the log ${last ?? 0}`);
    }
    for (const id of rows.keys())
      if (!models.has(id)) faults.push(`${modelName} ${id} in ${place}: there is a row but no event`);
    return faults;
  });
}

function checkRecordedDeliveries(
  { records: deliveries, handlers }: DeliveryRecorder,
  records: readonly DatabaseRecord[],
): readonly string[] {
  return checkDeliveries({
    records: deliveries,
    handlers,
    logs: records.map(({ events, blocked }) => ({
      events,
      isBlocked: (handler, { id }) => blocked.has(`${handler} ${id}`),
    })),
  });
}

async function ownViolations<Answer>(
  { check, recorder }: RecordCheck<Answer>,
  databases: readonly RecordedDatabase[],
  records: readonly DatabaseRecord[],
): Promise<readonly string[]> {
  try {
    return (
      (await check?.({
        calls: recorder.calls,
        events: records.flatMap((record) => record.events),
        rows: async (text, values) =>
          (await Promise.all(databases.map((database) => database.rows(text, values)))).flat(),
      })) ?? []
    );
  } catch (error) {
    return [error instanceof Error ? error.message : String(error)];
  }
}
