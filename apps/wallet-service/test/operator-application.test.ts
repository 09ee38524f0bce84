import { parseFrameworkConfig } from '@framework/core';
import { type InvariantViolation, Operator } from '@framework/operator';
import type { FaultProxy } from '@framework/testing';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';

import { pretendLong, scannedBy } from '../../../packages/operator/test/fixtures/plans.js';
import operatedService from '../src/operator-module.js';
import { rowsOf, withSession } from './database-session.js';
import { moneyByCurrency } from './money-in-all.js';
import { startProxiedService } from './start-proxied-service.js';
import { type TestService, configTree } from './start-test-service.js';

const currentPartition = `events_${new Date().toISOString().slice(0, 7).replace('-', '_')}`;
const patience = { timeout: 30_000, interval: 20 };

let service: TestService;
let proxy: FaultProxy;
let stop: () => Promise<void>;
/** As the command line has it. */
let operated: ReturnType<typeof operatedService>;
let operator: Operator;

beforeAll(async () => {
  ({ service, proxy, stop } = await startProxiedService({
    login: 'owner',
    mexico: { 'statement-timeout-ms': 2_000, 'acquisition-timeout-ms': 3_000 },
    delivery: { 'poll-max-ms': 100, retry: { 'backoff-base-ms': 50, 'backoff-max-ms': 200 } },
  }));
  operated = operatedService(
    parseFrameworkConfig(configTree(service, { login: 'owner', mexicoPort: proxy.port })),
  );
  operator = new Operator(operated);
});
afterAll(async () => {
  await operated.databases.close();
  await stop();
});

/** Sends 40 EUR from a new wallet to another one, by default from Germany to Mexico. */
async function send(
  from = 'DE',
  to = 'MX',
): Promise<{ readonly id: string; readonly sourceId: string; readonly destId: string }> {
  const source = await service.client.openWallet({ country: from });
  const dest = await service.client.openWallet({ country: to });
  const transfer = { sourceId: source.id, destId: dest.id, amount: '40' };
  const { body } = await service.client.post('/transfers', transfer);
  return { id: String(body['id']), sourceId: source.id, destId: dest.id };
}

async function untilEnded(id: string, state: string): Promise<void> {
  await vi.waitFor(async () => {
    expect((await service.client.get(`/transfers/${id}`)).body).toMatchObject({ state });
  }, patience);
}

async function viewed(name: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const { items, failures } = await view(name).read({ limit: 1_000 });
  expect(failures).toEqual([]);
  return items;
}

function view(name: string): Operator['views'][number] {
  const found = operator.views.find((each) => each.name === name);
  if (found === undefined) throw new Error(`There is no view ${name}`);
  return found;
}

function checked(name: string, after?: string): Promise<unknown> {
  const found = operator.invariants.find((each) => each.name === name);
  if (found === undefined) throw new Error(`There is no invariant ${name}`);
  return found.check({ limit: 1_000, after });
}

/** Runs all checks to their ends, two models of each database at a time. */
async function violations(): Promise<readonly InvariantViolation[]> {
  const found: InvariantViolation[] = [];
  for (const invariant of operator.invariants) {
    let after: string | undefined;
    do {
      const step = await invariant.check({ limit: 2, after });
      expect(step.failures).toEqual([]);
      found.push(...step.items);
      after = step.next;
    } while (after !== undefined);
  }
  return found;
}

describe('transfers', () => {
  test('are listed by shard, the newest first and page by page', async () => {
    const ids: string[] = [];
    for (let n = 0; n < 3; n++) {
      const { id } = await send();
      await untilEnded(id, 'COMPLETED');
      ids.push(id);
    }
    const first = await view('transfers').read({ limit: 2 });
    const second = await view('transfers').read({ limit: 2, after: first.next });
    const listed = [...first.items, ...second.items].map(({ id }) => id);
    expect(listed.slice(0, 3)).toEqual(ids.toReversed());
    expect(first.items[0]).toMatchObject({
      state: 'COMPLETED',
      amount: '40',
      currency: 'EUR',
      shards: ['0/0'],
    });
    expect(await viewed('transfers-in-transit')).toEqual([]);
  });

  test('are explained from both shards', async () => {
    const { id, sourceId, destId } = await send();
    await untilEnded(id, 'COMPLETED');
    expect(await operator.why(id)).toMatchObject({
      kind: 'extension',
      sentences: expect.arrayContaining([
        `Transfer ${id}: 40 EUR from wallet ${sourceId} on 0/0 to ${destId} on 1/0 is complete.`,
      ]) as string[],
      sides: [
        { title: 'Source', shard: '0/0', fields: { state: 'COMPLETED', walletId: sourceId } },
        { title: 'Destination', shard: '1/0', fields: { state: 'RECEIVED', walletId: destId } },
      ],
    });
  });

  test('that their destination refuses are explained with the reason', async () => {
    const dest = await service.client.openWallet({ country: 'MX' });
    await service.client.post(`/wallets/${dest.id}/close`, {});
    const source = await service.client.openWallet({ country: 'DE' });
    const { body } = await service.client.post('/transfers', {
      sourceId: source.id,
      destId: dest.id,
      amount: '7',
    });
    await untilEnded(String(body['id']), 'REFUNDED');
    const { sentences, sides } = await operator.why(String(body['id']));
    expect(sentences[0]).toContain('was refunded: wallet-closed.');
    expect(sides[1]).toMatchObject({ shard: '1/0', fields: { state: 'REFUSED', reason: 'wallet-closed' } });
  });

  test('whose destination is down are in transit, and say so', async () => {
    await proxy.refuse();
    onTestFinished(() => proxy.accept());
    const source = await service.client.openWallet({ country: 'DE' });
    const [dest] = await rowsOf(service.mexico, `select id from wallets where state = 'OPENED' limit 1`);
    const { body } = await service.client.post('/transfers', {
      sourceId: source.id,
      destId: dest?.['id'],
      amount: '3',
    });
    const id = String(body['id']);
    const { items, failures } = await view('transfers-in-transit').read({ limit: 10 });
    expect(items).toMatchObject([{ id, amount: '3' }]);
    expect(failures).toMatchObject([{ shards: ['1/0'] }]);
    const answer = await operator.why(id);
    expect(answer.sentences.slice(0, 2)).toEqual([
      expect.stringContaining('is in transit'),
      expect.stringContaining('The shard 1/0 of its destination does not answer'),
    ]);
    expect(answer.sides).toMatchObject([
      { fields: { state: 'INITIATED' } },
      { failure: expect.any(String) as string },
    ]);
    await proxy.accept();
    await untilEnded(id, 'COMPLETED');
  });

  test('are compared as far as shards answer, and only the one that does not is named', async () => {
    const { id } = await send();
    await untilEnded(id, 'COMPLETED');
    await proxy.refuse();
    onTestFinished(() => proxy.accept());
    let examinedCount = 0;
    for (const invariant of operator.invariants) {
      const step = await invariant.check({ limit: 1_000 });
      examinedCount += step.examinedCount;
      expect([invariant.name, new Set(step.failures.flatMap(({ shards }) => shards))]).toEqual([
        invariant.name,
        new Set(['1/0']),
      ]);
    }
    expect(examinedCount).toBeGreaterThan(0);
  });

  test('of nobody are not explained', async () => {
    expect(await operator.why('01920000-0000-7000-8000-000000000000')).toMatchObject({ kind: 'unknown' });
    expect(await operator.why('no id')).toMatchObject({ kind: 'unknown', failures: [] });
  });
});

test('the money of each shard is summed per currency', async () => {
  const rows = await viewed('reconciliation');
  expect(rows.map(({ shards, currency }) => [shards, currency])).toEqual([
    [['0/0'], 'EUR'],
    [['1/0'], 'EUR'],
  ]);
  const [ofGlobal] = await rowsOf(
    service.global,
    'select trim_scale(sum(balance))::text as balance from wallets',
  );
  expect(rows[0]).toMatchObject({ balance: ofGlobal?.['balance'], inTransit: '0' });
  const sum = rows.reduce((total, { money }) => total + Number(money), 0);
  expect({ EUR: String(sum) }).toEqual(await moneyByCurrency(service));
});

describe('invariants', () => {
  test('hold for what the service does', async () => {
    expect(await violations()).toEqual([]);
  });

  test('hold for a shard that comes back from another database, whose log has the newer events', async () => {
    const { id } = await service.client.openWallet({ country: 'DE' });
    const [held] = await rowsOf(
      service.global,
      'select adopted_date::text as before from eventlog.shards where shard_group = 0',
    );
    onTestFinished(async () => {
      await rowsOf(service.global, 'update eventlog.shards set adopted_date = $1 where shard_group = 0', [
        held?.['before'],
      ]);
      await rowsOf(service.global, 'delete from wallets where id = $1', [id]);
    });
    await rowsOf(
      service.global,
      'update wallets set version = version + 5, balance = balance + 3 where id = $1',
      [id],
    );
    expect(await violations()).toHaveLength(2);
    await rowsOf(service.global, 'update eventlog.shards set adopted_date = clock_timestamp()');
    expect(await violations()).toEqual([]);
    await service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
    await rowsOf(service.global, 'update wallets set balance = balance + 1 where id = $1', [id]);
    expect(await violations()).toMatchObject([{ id }]);
  });

  test('are checked in steps that read as many models as they examine', async () => {
    const ended = await send();
    await untilEnded(ended.id, 'COMPLETED');
    const ofLocal = `from transfers where id::text like 'ffffffff-%'`;
    onTestFinished(async () => {
      await rowsOf(service.global, `delete ${ofLocal}`);
    });
    // Those in transit need no decision.
    await rowsOf(
      service.global,
      `insert into transfers (id, version, state, created_date, updated_date, source_id, dest_id, amount, currency)
       select ('ffffffff-' || lpad(to_hex(n), 4, '0') || right(id::text, 23))::uuid, 1, 'INITIATED', created_date, updated_date, source_id,
         dest_id, amount, currency
       from transfers, generate_series(1, 5000) n where id = $1`,
      [ended.id],
    );
    const step = await checked('transfers-decided', JSON.stringify({ '0/0': ended.id, '1/0': null }));
    expect(step).toMatchObject({ examinedCount: 1_000, items: [], failures: [] });
  });

  test.each(['wallet-balances', 'transfers-decided', 'decisions-justified'])(
    '%s refuses a forged place',
    async (name) => {
      await expect(checked(name, JSON.stringify({ '0/0': 'x' }))).rejects.toMatchObject({
        code: 'invalid-cursor',
      });
    },
  );

  test.each([
    ['a balance without an event', `update wallets set balance = balance + 1 where id = $1`, 'says'],
    ['a negative balance', `update wallets set balance = -1 where id = $1`, 'negative balance -1'],
    ['a version without an event', `update wallets set version = version + 1 where id = $1`, 'of version'],
  ])('notice %s', async (_what, change, text) => {
    const { id } = await service.client.openWallet({ country: 'DE' });
    const [before] = await rowsOf(service.global, 'select version, balance from wallets where id = $1', [id]);
    onTestFinished(async () => {
      const values = [id, before?.['version'], before?.['balance']];
      await rowsOf(service.global, 'update wallets set version = $2, balance = $3 where id = $1', values);
    });
    await rowsOf(service.global, change, [id]);
    expect(await violations()).toContainEqual({
      id,
      shards: ['0/0'],
      text: expect.stringContaining(text) as string,
    });
  });

  test.each([
    [
      'a completed transfer without a decision',
      'mexico',
      `delete from transfer_decisions where transfer_id = $1`,
      'has not decided',
    ],
    [
      'a received transfer that was refunded',
      'global',
      `update transfers set state = 'REFUNDED' where id = $1`,
      'is REFUNDED, but its destination decided RECEIVED',
    ],
    [
      'another amount at the destination',
      'mexico',
      `update transfer_decisions set amount = 41 where transfer_id = $1`,
      'is over 40 EUR, but its destination decided about 41 EUR',
    ],
    ['money that nobody sent', 'global', `delete from transfers where id = $1`, 'does not exist'],
  ] as const)('notice %s', async (_what, shard, change, text) => {
    const { id } = await send();
    await untilEnded(id, 'COMPLETED');
    expect(await violations()).toEqual([]);
    await rowsOf(service[shard], change, [id]);
    onTestFinished(async () => {
      await rowsOf(service.global, 'delete from transfers where id = $1', [id]);
      await rowsOf(service.mexico, 'delete from transfer_decisions where transfer_id = $1', [id]);
    });
    expect((await violations()).map((each) => each.text)).toContainEqual(expect.stringContaining(text));
  });
});

describe('with 100,000,000 transfers and events, no table is read from its beginning to its end', () => {
  const tables = ['wallets', 'transfers', 'transfer_decisions'];

  beforeAll(async () => {
    const [{ id }, { id: back }] = await Promise.all([send(), send('MX', 'DE')]);
    await Promise.all([untilEnded(id, 'COMPLETED'), untilEnded(back, 'COMPLETED')]);
    for (const database of [service.global, service.mexico])
      await withSession(database, async (session) => {
        const query = async (text: string, values?: unknown[]) => (await session.query(text, values)).rows;
        await query('analyze');
        await pretendLong(query, [...tables, `eventlog.${currentPartition}`]);
      });
  });

  test.each<[string, () => Promise<unknown>]>([
    ['transfers', () => view('transfers').read({ limit: 100 })],
    ['transfers in transit', () => view('transfers-in-transit').read({ limit: 100 })],
    ['balances', () => checked('wallet-balances')],
    ['ended transfers', () => checked('transfers-decided')],
    ['decisions', () => checked('decisions-justified')],
    ['why', async () => operator.why(String((await viewed('transfers'))[0]?.['id']))],
  ])('for %s', async (_what, work) => {
    const read = await withSession(service.global, (session) =>
      scannedBy(work, async (text, values) => (await session.query(text, values)).rows, /wallets|transfer/),
    );
    expect(read.statementCount).toBeGreaterThan(0);
    expect(read.tables.filter((table) => [...tables, currentPartition].includes(table))).toEqual([]);
  });

  test('for sums, which are refused', async () => {
    const { items, failures } = await view('reconciliation').read({ limit: 100 });
    expect(items).toEqual([]);
    expect(failures.map(({ code }) => code)).toEqual(['limit-exceeded', 'limit-exceeded']);
  });
});

test('the documents are those that the service serves', async () => {
  const documents = operated.extensions.flatMap((each) => Object.entries(each.documents ?? {}));
  expect(documents.map(([name]) => name)).toEqual(['openapi', 'asyncapi']);
  for (const [name, make] of documents)
    expect(await make()).toEqual((await service.client.get(`/${name}.json`)).body);
});
