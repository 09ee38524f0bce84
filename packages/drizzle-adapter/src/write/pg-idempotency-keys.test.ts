import { ShardIdentifier } from '@framework/core';
import { setImmediate as settled } from 'node:timers/promises';
import { expect, test } from 'vitest';

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
