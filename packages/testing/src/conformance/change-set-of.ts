import { type ChangeSet, ShardedId, systemClock } from '@framework/core';
import { Account } from './domain/account.js';
import type { AccountReader } from './storage-fixture.js';
import { namespace, principal } from './suite-context.js';

/**
 * Makes the change set of one update, past the executor and its checks.
 *
 * @param next the account as it will be stored, its version one higher than the row's
 * @param payloads one for each event
 */
export function changeSetOf(
  repository: AccountReader,
  next: Account,
  payloads: readonly string[],
): ChangeSet {
  const shard = next.id.resolveShardIdentifier();
  const event = {
    modelId: next.id.value,
    modelName: 'Account',
    modelVersion: next.version,
    type: 'TriedEvent',
  };
  const uuid = (): string => ShardedId.generate(Account, shard).value;
  return {
    shard,
    action: {
      id: uuid(),
      name: 'TryAction',
      params: '{}',
      namespace,
      principal: principal.name,
      headers: '{}',
      startedDate: systemClock.now(),
    },
    changes: [
      {
        kind: 'update',
        repository,
        model: next,
        expectedVersion: next.version - 1,
        row: repository.encode(next),
      },
    ],
    events: payloads.map((payload, ordinal) => ({ ...event, id: uuid(), ordinal, payload })),
  };
}
