import { describe, expect, test } from 'vitest';

import { FakeRepository } from '../../test/fake-repository.js';
import { Address } from '../../test/order.js';
import { global, openWallet } from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import { ShardedId } from '../id/id.js';
import type { Change, ChangeSet } from '../storage/change-set.js';
import type { KeyScope } from '../storage/idempotency-keys.js';
import { PendingCommit, type PendingVersion } from './pending-commit.js';
import { nextGroup } from './write-group.js';

const wallets = new FakeRepository(Wallet);
const [a, b, c] = [openWallet(), openWallet(), openWallet()];

/** The next version of a wallet. */
function changeOf({ id, createdDate, ownerId, balance }: Wallet, expectedVersion: number = 1): Change {
  const version = expectedVersion + 1;
  const model = new Wallet({ id, createdDate, state: 'OPENED', ownerId, balance, version });
  return { kind: 'update', repository: wallets, model, expectedVersion, row: {} };
}

/** A plan that depends on these pending versions, and on all that these plans stage. */
function planOf(
  changes: readonly Change[],
  dependsOn: readonly (PendingCommit | PendingVersion)[] = [],
  key?: Partial<KeyScope>,
): PendingCommit {
  const scope = { namespace: 'com.example.wallet', principal: 'alice', key: 'key-1', ...key };
  const set = { shard: global, changes, events: [], ...(key && { key: scope }) } as unknown as ChangeSet;
  const plan = new PendingCommit(
    set,
    dependsOn.flatMap((base) => (base instanceof PendingCommit ? stagedBy(base) : base)),
  );
  plan.outcome.catch(() => undefined);
  return plan;
}

function stagedBy(plan: PendingCommit): readonly PendingVersion[] {
  return plan.changes.changes.map((change) => ({ plan, change }));
}

describe('a queue', () => {
  test('may be longer than a call can have arguments', () => {
    const plan = planOf([]);
    const queue = Array.from({ length: 200_000 }, () => plan);
    const { group, rest } = nextGroup(queue, 32);
    expect([group.length, rest.length]).toEqual([32, 199_968]);
  });

  test('is written in one group if each plan of a model continues the previous one', () => {
    const first = planOf([changeOf(a), changeOf(b)]);
    const next = planOf([changeOf(a, 2), changeOf(b, 2)], [first]);
    const last = planOf([changeOf(b, 3)], [next]);
    const queue = [first, planOf([changeOf(c)]), next, last];
    expect(nextGroup(queue, 32)).toEqual({ group: queue, rest: [] });
  });

  test('makes plans of one model wait if they do not continue each other, and lets no plan overtake them', () => {
    const first = planOf([changeOf(a)]);
    const same = planOf([changeOf(a), changeOf(b)]);
    const behind = planOf([changeOf(b)]);
    const other = planOf([changeOf(c)]);
    expect(nextGroup([first, same, behind, other], 32)).toEqual({
      group: [first, other],
      rest: [same, behind],
    });
  });

  test('makes a plan wait if it does not continue the last version of the model that it changes', () => {
    const first = planOf([changeOf(a), changeOf(b)]);
    const next = planOf([changeOf(a, 2)], [first]);
    const older = planOf([changeOf(a, 2)], [first]);
    const [ofA] = stagedBy(first);
    const ofOther = planOf([changeOf(b, 2)], [ofA!]);
    const blind = planOf([changeOf(b, 2)]);
    expect(nextGroup([first, next, older, ofOther, blind], 32)).toEqual({
      group: [first, next],
      rest: [older, ofOther, blind],
    });
    const back = planOf([changeOf(a)], [first]);
    expect(nextGroup([first, back], 32)).toEqual({ group: [first], rest: [back] });
  });

  test('makes a plan wait for what it depends on, unless that already has its outcome', () => {
    const [first, ended] = [planOf([changeOf(a)]), planOf([changeOf(b)])];
    ended.decide('written');
    const built = planOf([changeOf(c)], [first]);
    const free = planOf([changeOf(b, 2)], [ended]);
    expect(nextGroup([first, built, free], 32)).toEqual({ group: [first, free], rest: [built] });
    const both = planOf([changeOf(a, 2), changeOf(c)], [first, planOf([changeOf(b)])]);
    expect(nextGroup([first, both], 32).rest).toEqual([both]);
  });

  test('does not wait for a model of another class with the same id', () => {
    const id = ShardedId.of(Address, a.id.value);
    const model = new Address({ id, state: 'KNOWN', city: 'Riga', version: 2 });
    const repository = new FakeRepository(Address);
    const change: Change = { kind: 'update', repository, model, expectedVersion: 1, row: {} };
    const queue = [planOf([changeOf(a)]), planOf([change])];
    expect(nextGroup(queue, 32).group).toEqual(queue);
  });

  test('has each idempotency key only once in a group', () => {
    const first = planOf([changeOf(a)], [], {});
    const same = planOf([changeOf(b)], [], {});
    const others = [{ key: 'key-2' }, { principal: 'bob' }, { namespace: 'com.example.other' }].map((key) =>
      planOf([changeOf(openWallet())], [], key),
    );
    expect(nextGroup([first, same, ...others], 32)).toEqual({ group: [first, ...others], rest: [same] });
    const third = planOf([changeOf(c)], [], {});
    expect(nextGroup([same, third], 32, [first])).toEqual({ group: [], rest: [same, third] });
  });

  test('waits for plans of its models that are ahead of it', () => {
    const ahead = planOf([changeOf(a)]);
    const continued = planOf([changeOf(a, 2)], [ahead]);
    const other = planOf([changeOf(b)]);
    expect(nextGroup([continued, other], 32, [ahead])).toEqual({ group: [other], rest: [continued] });
    expect(nextGroup([continued], 32, [ahead])).toEqual({ group: [], rest: [continued] });
  });

  test('marks its plans as held up only if they wait for a plan that is held up', () => {
    const [locked, ahead] = [planOf([changeOf(a)]), planOf([changeOf(b)])];
    locked.isHeldUp = true;
    const behindLocked = planOf([changeOf(a), changeOf(c)]);
    const behindThat = planOf([changeOf(c)]);
    const behind = planOf([changeOf(b)]);
    const free = planOf([changeOf(openWallet())]);
    for (const plan of [behind, free]) plan.isHeldUp = true;
    nextGroup([behindLocked, behindThat, behind, free], 32, [locked, ahead]);
    expect([behindLocked, behindThat, behind, free].map(({ isHeldUp }) => isHeldUp)).toEqual([
      true,
      true,
      false,
      false,
    ]);
  });
});
