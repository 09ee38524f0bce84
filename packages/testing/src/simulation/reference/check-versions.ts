import type { MemoryTables } from '../../memory/index.js';

/**
 * The versions of each model follow one another without a gap, its row has the last one, and its events are those of its
 * changes, in the log as they were committed.
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
        faults.push(`${key}: version ${version} follows ${before} by ${action.name}`);
      versions.set(key, version);
      changed.set(key, version);
    }
    for (const { modelName, modelId, modelVersion, type } of events) {
      const version = changed.get(`${modelName} ${modelId}`);
      if (version !== modelVersion)
        faults.push(`${modelName} ${modelId}: ${type} says version ${modelVersion}, its change ${version}`);
    }
  }
  for (const [key, version] of versions) {
    const [table = '', id = ''] = key.split(' ');
    const row = tables.rows(table).get(id);
    if (row !== undefined && row.version !== version)
      faults.push(`${key}: the row has version ${row.version} after ${version}`);
  }
  const committed = tables.commits.flatMap(({ events }) => events.map(({ id }) => id));
  const logged = tables.delivery.log.map(({ id }) => id);
  if (committed.join() !== logged.join()) faults.push('the log does not hold the events that were committed');
  return faults;
}
