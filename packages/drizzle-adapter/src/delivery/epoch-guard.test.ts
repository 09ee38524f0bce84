import pg from 'pg';
import { expect, test } from 'vitest';

import type { PostgresWarning } from '../connection/postgres-options.js';
import { EpochGuard } from './pg-handler-cursors.js';

function refused(code: string): pg.DatabaseError {
  return Object.assign(new pg.DatabaseError('refused', 0, 'error'), { code });
}

/** Asks a server that gives these answers one after the other. */
async function ensured(...answers: readonly (Error | { epoch: number; begun: boolean })[]) {
  const left = [...answers];
  const query = (): Promise<unknown> => {
    const answer = left.shift();
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve({ rows: [answer] });
  };
  const warnings: PostgresWarning[] = [];
  const guard = new EpochGuard('groups/0/0', (warning) => warnings.push(warning));
  const error: unknown = await guard
    .ensure({ query } as unknown as pg.ClientBase)
    .catch((thrown: unknown) => thrown);
  return { warnings, error, unasked: left.length };
}

test('an epoch that begins is reported, and one that continues is not', async () => {
  const { warnings } = await ensured({ epoch: 3, begun: true });
  expect(warnings).toMatchObject([{ kind: 'new-epoch', database: 'groups/0/0' }]);
  expect(warnings[0]?.message).toContain('epoch 3');
  expect((await ensured({ epoch: 3, begun: false })).warnings).toEqual([]);
});

test('a conflict with another session that begins an epoch is retried', async () => {
  const { warnings, error, unasked } = await ensured(refused('40001'), refused('55P03'), {
    epoch: 2,
    begun: true,
  });
  expect({ error, unasked, told: warnings.length }).toEqual({ error: undefined, unasked: 0, told: 1 });
});

test.each(['3F000', '42P01', '42703', '42883'])(
  'a database that is not migrated (%s) has no epoch yet',
  async (code) => {
    expect(await ensured(refused(code))).toEqual({ warnings: [], error: undefined, unasked: 0 });
  },
);

test('a connection whose epoch is unknown is not used', async () => {
  const { error, unasked } = await ensured(refused('42501'), { epoch: 2, begun: true });
  expect(error).toMatchObject({ code: '42501' });
  expect(unasked).toBe(1);
  expect((await ensured(new Error('cut'))).error).toMatchObject({ message: 'cut' });
});
