import { CommitOutcomeUnknownError, FrameworkError, ShardedId } from '@framework/core';
import type { Change, ChangeSet, KeyRecord } from '@framework/core/adapter';
import { type Account, firstShard } from '@framework/conformance';
import type { Both, Store } from './store-pair.js';

/** The contents of one change set, whichever store it is written to. */
export interface Write {
  readonly actionId: string;
  readonly models: readonly Account[];
  readonly eventCounts: readonly number[];
  readonly key: KeyRecord | undefined;
  /** The timelines of the stores when the models were read. */
  readonly timeline: Both<number>;
  /** Whether an earlier attempt of the same action may have been committed. */
  readonly isRepeat: boolean;
}

export function newId(): string {
  return ShardedId.generate(Object, firstShard).value;
}

/** The ids of a write's events are derived from its action's id, so that both stores get the same. */
export function eventsOf({ actionId, models, eventCounts }: Write): ChangeSet['events'] {
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

export function changeSet(write: Write, { accounts: repository, name }: Store): ChangeSet {
  const { actionId, models, key, timeline, isRepeat } = write;
  const changes = models.map((model): Change => {
    const expectedVersion = model.version - 1;
    const kind = expectedVersion === 0 ? 'add' : 'update';
    return { kind, repository, model, expectedVersion, row: repository.encode(model) };
  });
  return {
    shard: firstShard,
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
    timeline: timeline[name],
    ...(isRepeat && { unknownCommits: [new CommitOutcomeUnknownError(firstShard, actionId)] }),
  };
}

/** Writes a group, and then one by one what the group could not hold. */
export async function writeTogether(writes: readonly Write[], store: Store): Promise<readonly string[]> {
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
    // A group that is rejected is not written at all.
    if (FrameworkError.find(error) === undefined) throw error;
    return group.map(() => 'single' as const);
  });
  const codes: string[] = [];
  for (const [index, outcome] of outcomes.entries()) {
    const set = group[index] as ChangeSet;
    const code = typeof outcome === 'string' ? outcome : outcome.code;
    codes.push(code === 'single' ? await inTurn(set) : code);
    if (codes.at(-1) !== 'written') for (const { model } of set.changes) lost.add(model.id.value);
  }
  return codes;
}

async function codeOf(writing: Promise<string>): Promise<string> {
  try {
    return await writing;
  } catch (error) {
    const known = FrameworkError.find(error);
    if (known === undefined) throw error;
    return known.code;
  }
}
