import pg from 'pg';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { lockedCount, rowsOf } from './database-session.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';

const deposits = 64;

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ groupCommit: true });
});
afterAll(() => stopTestService(service));

test('concurrent deposits into one wallet share updates of its row', async () => {
  const { id } = await service.client.openWallet({ country: 'MX' });
  const deposit = () => service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
  // The first deposit waits for the row, and so do all that arrive in the meantime.
  const holder = new pg.Client({ connectionString: service.mexico.url });
  await holder.connect();
  onTestFinished(() => holder.end());
  await holder.query('begin');
  await holder.query('select from wallets where id = $1 for update', [id]);
  const answered = Promise.all(Array.from({ length: deposits }, deposit));
  await expect.poll(() => lockedCount(service.mexico)).toBeGreaterThan(0);
  await holder.query('commit');
  const answers = await answered;
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
  const [counts] = await rowsOf(
    service.mexico,
    `select count(*)::int as events, count(distinct xid)::int as commits from eventlog.events
     where model_id = $1 and model_version > 1`,
    [id],
  );
  expect(counts).toMatchObject({ events: deposits });
  expect((counts as { readonly commits: number }).commits).toBeLessThan(deposits);
});
