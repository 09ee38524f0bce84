import pg from 'pg';
import { expect, test } from 'vitest';

import { HistoryQuestion } from './server-session.js';

const hidden = Object.assign(new pg.DatabaseError('permission denied', 1, 'error'), { code: '42501' });

/** A connection to a server that hides its timeline, and answers when the test says so. */
function hidingClient(answered: Promise<void>): pg.ClientBase {
  const query = async ({ text }: pg.QueryConfig): Promise<unknown> => {
    await answered;
    if (text.includes('pg_control_system')) throw hidden;
    return { rows: [{ text }] };
  };
  return { query } as unknown as pg.ClientBase;
}

test('a server that hides its timeline is asked for its start time, even by connections that open together', async () => {
  const history = new HistoryQuestion();
  const answered = Promise.withResolvers<void>();
  const ask = (): Promise<unknown> => history.ask(hidingClient(answered.promise), (text) => ({ text }));
  const answers = [ask(), ask()];
  answered.resolve();
  const start = [{ text: expect.stringContaining('pg_postmaster_start_time') as string }];
  expect(await Promise.all(answers)).toEqual([start, start]);
  expect(await ask()).toEqual(start);
});
