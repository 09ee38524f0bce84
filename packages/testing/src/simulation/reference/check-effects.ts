import type { MemoryCommit, MemoryTables } from '../../memory/index.js';
import { type CallRecord, type History, callHeader, effectHeader } from '../history.js';

interface Effect {
  readonly commit: MemoryCommit;
  readonly headers: Readonly<Record<string, string | undefined>>;
}

/**
 * Checks that each successful call has its effect exactly once, that each refused call has none, and that a key has one
 * effect, whoever repeated it.
 *
 * Effects that a failover has lost may be missing or repeated. The effect of a handler for an event may exist once per
 * id of the handler, if a failover has lost the handler and it was registered under another id.
 */
export function checkEffects(history: History, commits: readonly MemoryCommit[]): readonly string[] {
  const kept = commits.map(effectOf);
  const lost = history.lost.map(effectOf);
  return [
    ...history.calls.flatMap((call) => faultsOfCall(call, kept, lost)),
    ...faultsOfHandlers(history, kept, lost),
    ...faultsOfKeys(history, commits),
    ...doubledActions(commits),
  ];
}

function effectOf(commit: MemoryCommit): Effect {
  return { commit, headers: JSON.parse(commit.action.headers) as Effect['headers'] };
}

/** How many different actions have committed. */
function actionCount(effects: readonly Effect[]): number {
  return new Set(effects.map(({ commit }) => commit.action.id)).size;
}

function faultsOfCall(
  { number, outcome, code, call, key }: CallRecord,
  kept: readonly Effect[],
  lost: readonly Effect[],
): readonly string[] {
  const isOwn = ({ headers }: Effect): boolean =>
    headers[callHeader] === String(number) && headers['causation-id'] === undefined;
  const count = actionCount(kept.filter(isOwn));
  const lostCount = lost.filter(isOwn).length;
  const what = `call ${number} (${call.action.name}${key === undefined ? '' : ', keyed'})`;
  if (count > 1) return [`${what} was ${outcome ?? 'not answered'} and has ${count} effects`];
  if (outcome === 'ok' && count === 0 && lostCount === 0) return [`${what} was ok but has no effect`];
  if (outcome === 'refused' && count > 0) return [`${what} was refused (${code}) but has an effect`];
  return [];
}

function faultsOfHandlers(
  { effects, idsOfLost }: History,
  kept: readonly Effect[],
  lost: readonly Effect[],
): readonly string[] {
  const byEffect = (all: readonly Effect[]): Map<string | undefined, Effect[]> =>
    Map.groupBy(all, ({ headers }) =>
      headers['causation-id'] === undefined ? undefined : headers[effectHeader],
    );
  const keptBy = byEffect(kept);
  const lostBy = byEffect(lost);
  const faults: string[] = [];
  for (const [effect, all] of keptBy) {
    const count = actionCount(all);
    if (effect === undefined) continue;
    const [handler, eventId] = effect.split(' ');
    const countMax = idsOfLost.get(`${handler} ${eventId}`)?.size ?? 1;
    if (count > countMax) faults.push(`${effect} has ${count} effects`);
  }
  for (const effect of new Set(effects.map((each) => each.effect))) {
    if (!keptBy.has(effect) && !lostBy.has(effect)) faults.push(`${effect} was ok but has no effect`);
  }
  return faults;
}

function faultsOfKeys({ keys }: History, commits: readonly MemoryCommit[]): readonly string[] {
  const byKey = Map.groupBy(commits, ({ action }) => keys.get(action.id));
  return [...byKey].flatMap(([key, all]) => {
    const count = new Set(all.map(({ action }) => action.id)).size;
    return key !== undefined && count > 1 ? [`the key ${key} has ${count} effects`] : [];
  });
}

/** Checks that an execution commits once on each shard, however many attempts it makes. */
function doubledActions(commits: readonly MemoryCommit[]): readonly string[] {
  const byAction = Map.groupBy(
    commits,
    ({ action, shard }) => `${action.name} ${action.id} on ${shard.toString()}`,
  );
  return [...byAction].flatMap(([action, all]) =>
    all.length > 1 ? [`${action} is committed ${all.length} times`] : [],
  );
}

/**
 * Checks that the versions of each model have no gaps, that its row has the last version, and that the log holds
 * exactly the events of its changes, in the order of their commits.
 */
export function checkVersions(
  tables: MemoryTables,
  versionsBefore: ReadonlyMap<string, number>,
): readonly string[] {
  const faults: string[] = [];
  const versions = new Map(versionsBefore);
  for (const { changes, events, action } of tables.commits) {
    const changed = new Map<string, number>();
    for (const { table, id, version } of changes) {
      const key = `${table} ${id}`;
      const before = versions.get(key) ?? 0;
      if (version !== before + 1)
        faults.push(`${key}: version ${version} by ${action.name} follows version ${before}`);
      versions.set(key, version);
      changed.set(key, version);
    }
    for (const { modelName, modelId, modelVersion, type } of events) {
      const version = changed.get(`${modelName} ${modelId}`);
      if (version !== modelVersion)
        faults.push(`${modelName} ${modelId}: ${type} has version ${modelVersion}, its change ${version}`);
    }
  }
  for (const [key, version] of versions) {
    const [table = '', id = ''] = key.split(' ');
    const row = tables.rows(table).get(id);
    if (row !== undefined && row.version !== version)
      faults.push(`${key}: the row has version ${row.version}, its last commit wrote ${version}`);
  }
  const committed = tables.commits.flatMap(({ events }) => events.map(({ id }) => id));
  const logged = tables.delivery.log.map(({ id }) => id);
  if (committed.join() !== logged.join()) faults.push('the log does not hold the events that were committed');
  return faults;
}
