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

/** What a record is compared with, and what must be true besides. */
export interface RecordCheck<Answer> {
  /** What clients were told, settled. */
  readonly recorder: CallRecorder<Answer>;
  /** What handlers were called with, where they ran in the process of the test. Default: that is not compared. */
  readonly deliveries?: DeliveryRecorder;
  /**
   * The PostgreSQL databases of all shards, each one once, as connection URLs of a user who may read the schema `eventlog` and the
   * tables of the models. Their logs are read whole.
   */
  readonly databases: readonly string[];
  /** The tables of the models, by the models' names in the log, such as `{ Book: 'books' }`. */
  readonly tables: Readonly<Record<string, string>>;
  /**
   * Whether an action may be in the log that was not recorded and that no handler executed, such as what had been there before.
   * Default: none may.
   */
  readonly mayBeThere?: (action: RecordedAction) => boolean;
  /** Whether handlers may have given up events. Default: no. */
  readonly deadLettersMayStay?: boolean;
  /**
   * How long handlers may take to come to rest. One that wants nothing of what was committed says so every `cursor-rest-save-ms`, 30
   * seconds unless the service is configured otherwise. Default: 60,000 ms.
   */
  readonly restWithinMs?: number;
  /** Own invariants: what is wrong, as texts; one that throws counts as one. */
  readonly check?: (state: RecordState<Answer>) => readonly string[] | Promise<readonly string[]>;
}

/** What is there after all calls, for own invariants. */
export interface RecordState<Answer> {
  readonly calls: readonly RecordedCall<Answer>[];
  /** Of all databases, one after the other; each in the order of its log. */
  readonly events: readonly RecordedEvent[];
  /** The rows of a query, of all databases together. */
  readonly rows: (text: string, values?: readonly unknown[]) => Promise<Rows>;
}

const restDefaultMs = 60_000;
const restPollMs = 100;

/**
 * Compares what clients were told with what the databases hold, once the faults have ended and the recorder is settled: waits
 * until delivery is at rest, then says what is wrong, in no order; nothing when all is well.
 *
 * - Each call that was ok has its effect once, one that was refused has none, and nothing is there that nobody asked for.
 * - The versions of a model follow one another, each by one action, and its row has the last one.
 * - Every handler has come to the end of the log, and has given nothing up. Where its calls were recorded: it received every event that
 *   it wants, nothing else, repeats as they were before, and those of a model in their order.
 *
 * Idempotency keys must not have expired meanwhile, nor partitions of the log been dropped.
 *
 * ```ts
 * await recorder.settle();
 * expect(await checkRecord({ recorder, databases: [url], tables: { Book: 'books' } })).toEqual([]);
 * ```
 *
 * @throws whatever a database throws that cannot be asked
 */
export async function checkRecord<Answer>(options: RecordCheck<Answer>): Promise<readonly string[]> {
  const databases: RecordedDatabase[] = [];
  try {
    for (const url of options.databases) databases.push(await RecordedDatabase.open(url));
    const waiting = await stillWaiting(databases, options.restWithinMs ?? restDefaultMs);
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

/** What handlers have not done when their time is over. */
async function stillWaiting(
  databases: readonly RecordedDatabase[],
  withinMs: number,
): Promise<readonly string[]> {
  const endMs = performance.now() + withinMs;
  for (;;) {
    const waiting = (await Promise.all(databases.map((database) => database.waiting()))).flat();
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
      .map(({ id, name }) => `${name} ${id} was committed, and no call asked for it`),
  ];
}

function faultsOf({ name, key, outcome, says }: RecordedCall, effectCount: number): readonly string[] {
  const what = `${name} (${key})`;
  if (outcome === 'unknown') return [`${what} has no known outcome: settle the recorder before the check`];
  if (outcome === 'ok' && effectCount === 0) return [`${what} was ok and has no effect`];
  if (outcome === 'refused' && effectCount > 0) return [`${what} was refused (${says}) and has an effect`];
  return [];
}

function doubledKey(same: readonly { readonly key: string; readonly actionId: string }[]): readonly string[] {
  const count = new Set(same.map(({ actionId }) => actionId)).size;
  return count > 1 ? [`the key ${same[0]?.key ?? ''} has ${count} effects`] : [];
}

/** The versions of each model follow one another from 1, each by one action, and its row has the last one. */
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
      if (!models.has(id)) faults.push(`${modelName} ${id} in ${place}: there is a row, and no event of it`);
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
