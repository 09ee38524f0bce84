import { ShardIdentifier } from '@framework/core';
import { setImmediate as settled } from 'node:timers/promises';
import { expect, test } from 'vitest';

import { leftBehind, unhandledIn } from '../../../core/test/left-behind.js';
import type { PgTransactionManager } from '../pg-transaction-manager.js';
import { PgIdempotencyKeys } from './pg-idempotency-keys.js';

test('a search with a short limit sends no new query until all late answers have arrived', async () => {
  const questions: PromiseWithResolvers<{ readonly rows: readonly [] }>[] = [];
  const manager: Partial<PgTransactionManager> = {
    shard: ShardIdentifier.of(0, 0),
    query: ((): unknown => {
      const question = Promise.withResolvers<{ readonly rows: readonly [] }>();
      questions.push(question);
      return question.promise;
    }) as PgTransactionManager['query'],
  };
  const keys = new PgIdempotencyKeys(manager as PgTransactionManager);
  const scope = { key: 'key', principal: 'somebody', namespace: 'test' };
  const late = await Promise.allSettled([keys.find(scope, 1), keys.find(scope, 1)]);
  expect(late.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  for (const question of questions) {
    await expect(keys.find(scope, 1)).rejects.toMatchObject({ code: 'shard-unavailable' });
    expect(questions).toHaveLength(late.length);
    question.resolve({ rows: [] });
    await settled();
  }
  const asked = keys.find(scope, 60_000);
  questions.at(-1)?.resolve({ rows: [] });
  expect(await asked).toBeUndefined();
  expect(questions).toHaveLength(late.length + 1);
});

test.each(['no place', '[1, 2', '{}', '["", "", ""]', '["", "", "", "", ""]'])(
  "a page of handlers' keys after the place %s is refused",
  async (after) => {
    const keys = new PgIdempotencyKeys({} as PgTransactionManager);
    await expect(keys.findHandlerKeys({ olderThanMs: 0, limit: 1, after })).rejects.toMatchObject({
      code: 'invalid-cursor',
    });
  },
);

const scope = { key: 'key', principal: 'somebody', namespace: 'test' };

/** Keys whose queries are answered by a function. */
function keysAnswering(query: () => Promise<unknown>): PgIdempotencyKeys {
  return new PgIdempotencyKeys({ shard: ShardIdentifier.of(0, 0), query } as unknown as PgTransactionManager);
}

test('a search that fails after its caller has given up ends no process, and later ones are sent again', async () => {
  const answer = Promise.withResolvers<never>();
  let askedCount = 0;
  const keys = keysAnswering(() => (askedCount++ === 0 ? answer.promise : Promise.resolve({ rows: [] })));
  const unhandled = await unhandledIn(async () => {
    await expect(keys.find(scope, 1)).rejects.toMatchObject({ code: 'shard-unavailable' });
    answer.reject(new Error('The connection is lost'));
  });
  expect(unhandled).toEqual([]);
  expect(await keys.find(scope, 60_000)).toBeUndefined();
  expect(askedCount).toBe(2);
});

test('a search with a limit leaves no timer behind, whether it is answered or fails', async () => {
  const state = { isDown: false };
  const keys = keysAnswering(() =>
    state.isDown ? Promise.reject(new Error('down')) : Promise.resolve({ rows: [] }),
  );
  const left = await leftBehind(async () => {
    state.isDown = false;
    await keys.find(scope, 60_000);
    state.isDown = true;
    await expect(keys.find(scope, 60_000)).rejects.toThrow('down');
  });
  expect(left).toEqual([]);
});

test.each([
  [0, 0, false],
  [1, 1, false],
  [2, 2, false],
  [3, 2, true],
])(
  'of %d keys of handlers, a page of two has %d, and there is another one: %s',
  async (count, size, hasNext) => {
    const rows = Array.from({ length: count }, (_item, index) => ({
      key: `${index}`,
      place: `["${index}"]`,
    }));
    const page = await keysAnswering(async () => ({ rows })).findHandlerKeys({ olderThanMs: 0, limit: 2 });
    expect([page.items.length, page.next]).toEqual([size, hasNext ? '["1"]' : undefined]);
  },
);

test('a missing key proves nothing on a server in recovery, and a stored one does', async () => {
  const stored = { fingerprint: 'f', actionId: 'id', actionName: 'A', result: null };
  const nothing = { fingerprint: null };
  await expect(keysAnswering(async () => ({ rows: [nothing] })).find(scope)).rejects.toMatchObject({
    code: 'shard-unavailable',
  });
  expect(await keysAnswering(async () => ({ rows: [nothing, stored] })).find(scope)).toEqual({
    ...stored,
    result: undefined,
  });
});
