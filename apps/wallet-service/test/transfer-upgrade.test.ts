import {
  Action,
  ActionExecutor,
  type Clock,
  FrameworkAction,
  type Id,
  type Principal,
  openDatabases,
  parseFrameworkConfig,
  systemClock,
} from '@framework/core';
import { PgRepository, postgres } from '@framework/drizzle-adapter';
import { createTestDatabase } from '@framework/testing/postgres';
import { Big } from 'big.js';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';

import { InitiateTransferAction } from '../src/transfer/initiate-transfer-action.js';
import { TransferDecision } from '../src/transfer/transfer-decision.js';
import { Transfer } from '../src/transfer/transfer.js';
import { transfers as transferTable } from '../src/transfer/transfer-tables.js';
import { RefundTransferAction, SettleTransferAction } from '../src/transfer/transfer-saga.js';
import { WalletCloseAction } from '../src/wallet/wallet-close-action.js';
import { WalletCreateAction } from '../src/wallet/wallet-create-action.js';
import { PgWalletRepository } from '../src/wallet/wallet-repository.js';
import type { Wallet } from '../src/wallet/wallet.js';
import { rowsOf } from './database-session.js';
import { moneyByCurrency } from './money-in-all.js';
import {
  type ShardDatabases,
  type TestService,
  configTree,
  startTestServiceOn,
  stopTestService,
} from './start-test-service.js';
import { anOwner } from './wallet-client.js';

const principal = { name: 'wallet-service' };
const amount = new Big(40);

/** The action as it was before decisions were introduced. */
@FrameworkAction()
class ReceiveTransferAction extends Action<{ transferId: string; destId: Id<Wallet> }, undefined> {
  constructor(
    clock: Clock,
    private readonly wallets: PgWalletRepository,
  ) {
    super(clock);
  }

  protected async perform(
    _principal: Principal,
    { transferId, destId }: { transferId: string; destId: Id<Wallet> },
  ): Promise<undefined> {
    this.plan().update((await this.wallets.getById(destId)).receive(transferId, amount));
  }
}

/** What a process of that time could do, on databases that have not been migrated since. */
class EarlierVersion {
  readonly #databases;
  readonly #executor;
  readonly #shards: ShardDatabases;

  constructor(shards: ShardDatabases, migrationsFolder: string) {
    const { sharding, namespace } = parseFrameworkConfig(configTree(shards, { login: 'owner' }));
    this.#shards = shards;
    this.#databases = openDatabases(sharding, postgres({ migrationsFolder }));
    const wallets = new PgWalletRepository(this.#databases);
    const transfers = new PgRepository({
      model: Transfer,
      table: transferTable,
      databases: this.#databases,
    });
    this.#executor = new ActionExecutor({
      namespace,
      databases: this.#databases,
      repositories: [wallets, transfers],
      actions: [
        new WalletCreateAction(systemClock),
        new WalletCloseAction(systemClock, wallets),
        new InitiateTransferAction(systemClock, wallets, this.#databases),
        new ReceiveTransferAction(systemClock, wallets),
        new RefundTransferAction(systemClock, wallets, transfers),
        new SettleTransferAction(systemClock, transfers),
      ],
    });
  }

  ready(): Promise<void> {
    return this.#databases.ready();
  }

  open(country: string): Promise<Wallet> {
    const wallet = { country, ownerId: anOwner, currency: 'EUR', initialBalance: new Big(100) };
    return this.#executor.execute(principal, WalletCreateAction, wallet);
  }

  async close({ id: walletId }: Wallet): Promise<void> {
    await this.#executor.execute(principal, WalletCloseAction, { walletId });
  }

  initiate(source: Wallet, dest: Wallet): Promise<Transfer> {
    const params = { sourceId: source.id, destId: dest.id, amount };
    return this.#executor.execute(principal, InitiateTransferAction, params);
  }

  async receive(transfer: Transfer): Promise<void> {
    const params = { transferId: transfer.id.value, destId: transfer.destId };
    const idempotencyKey = await this.#key(transfer, 'ReceiveTransferAction');
    await this.#executor.execute(principal, ReceiveTransferAction, params, { idempotencyKey });
  }

  async refund(transfer: Transfer): Promise<void> {
    const idempotencyKey = await this.#key(transfer, 'RefundTransferAction');
    const params = { transferId: transfer.id, reason: 'wallet-closed' };
    await this.#executor.execute(principal, RefundTransferAction, params, { idempotencyKey });
  }

  async complete({ id: transferId }: Transfer): Promise<void> {
    await this.#executor.execute(principal, SettleTransferAction, { transferId });
  }

  end(): Promise<void> {
    return this.#databases.close();
  }

  /** The key under which the handler `receive-transfer` executes a step. */
  async #key(transfer: Transfer, action: string): Promise<string> {
    const event = `select id from eventlog.events where model_id = $1 and event_type = 'TransferInitiatedEvent'`;
    const [row] = await rowsOf(this.#shards.global, event, [transfer.id.value]);
    return `receive-transfer/${String(row?.['id'])}/${action}`;
  }
}

describe('a database from before destinations decided transfers', () => {
  let folder: string;
  let shards: ShardDatabases;
  let earlier: EarlierVersion;
  let service: TestService;
  let money: object;
  let opened: Wallet;
  const wallets: Wallet[] = [];
  const transfers: Record<string, Transfer> = {};

  const balanceOf = async (wallet: Wallet): Promise<string> =>
    (await service.client.wallet(wallet.id.value)).balance;
  const sourceOf = (name: string): Wallet => wallets.find(({ id }) => id.equals(transfers[name]!.sourceId))!;
  const destOf = (name: string): Wallet => wallets.find(({ id }) => id.equals(transfers[name]!.destId))!;

  beforeAll(async () => {
    folder = await earlierMigrations();
    const [global, mexico] = await Promise.all([createTestDatabase(), createTestDatabase()]);
    shards = { global, mexico };
    earlier = new EarlierVersion(shards, folder);
    await earlier.ready();
    opened = await earlier.open('DE');
    // The wallets' initial balances had another name in the events, which lacked the ids.
    const openings = `update eventlog.events set payload = payload - 'id' - 'initialBalance'
      || jsonb_build_object('balance', payload -> 'initialBalance') where event_type = 'WalletCreatedEvent'`;
    await rowsOf(global, openings);
    for (const name of ['initiated', 'refused', 'received', 'completed', 'refunded']) {
      const [source, dest] = [await earlier.open('DE'), await earlier.open('MX')];
      wallets.push(source, dest);
      transfers[name] = await earlier.initiate(source, dest);
    }
    await earlier.close(destOf('refused'));
    await earlier.receive(transfers['received']!);
    await earlier.close(destOf('received'));
    await earlier.receive(transfers['completed']!);
    await earlier.complete(transfers['completed']!);
    await earlier.refund(transfers['refunded']!);
    await earlier.end();

    service = await startTestServiceOn(shards, { login: 'owner' });
    money = await moneyByCurrency(shards);
  });
  afterAll(async () => {
    await stopTestService(service);
    await rm(folder, { recursive: true });
  });

  test.each([
    ['initiated', 'COMPLETED', undefined, '60', '140'],
    ['refused', 'REFUNDED', 'wallet-closed', '100', '100'],
    ['received', 'COMPLETED', undefined, '60', '140'],
    ['completed', 'COMPLETED', undefined, '60', '140'],
    ['refunded', 'REFUNDED', 'wallet-closed', '100', '100'],
  ])('ends a transfer that was %s as %s, once', async (name, state, reason, sourceHas, destHas) => {
    await vi.waitFor(
      async () => {
        const { body } = await service.client.get(`/transfers/${transfers[name]!.id.value}`);
        expect([body['state'], body['reason']]).toEqual([state, reason]);
      },
      { timeout: 30_000, interval: 50 },
    );
    expect(await balanceOf(sourceOf(name))).toBe(sourceHas);
    expect(await balanceOf(destOf(name))).toBe(destHas);
    expect(await moneyByCurrency(shards)).toEqual(money);
  });

  test('gets a decision for money that arrived before, under the id that the action reads', async () => {
    const { id: transferId, destId } = transfers['received']!;
    const rows = await rowsOf(
      shards.mexico,
      'select id, state, amount::integer, currency from transfer_decisions where transfer_id = $1',
      [transferId.value],
    );
    const id = TransferDecision.idOf({ transferId, destId }).value;
    expect(rows).toEqual([{ id, state: 'RECEIVED', amount: 40, currency: 'EUR' }]);
  });

  test('refuses the steps of processes that do not know decisions', async () => {
    const late = new EarlierVersion(shards, folder);
    try {
      await late.ready();
      await service.service.delivery.stop();
      const [source, dest] = [await late.open('DE'), await late.open('MX')];
      const transfer = await late.initiate(source, dest);
      await expect(late.receive(transfer)).rejects.toMatchObject({ code: 'transient-storage' });
      await expect(late.refund(transfer)).rejects.toMatchObject({ code: 'transient-storage' });
      expect(await balanceOf(dest)).toBe('100');
      expect(await balanceOf(source)).toBe('60');
    } finally {
      await late.end();
    }
  });

  test("shows the opening of a wallet in today's format", async () => {
    const id = opened.id.value;
    const { body } = await service.client.get(`/wallets/${id}/events`);
    expect(body['items']).toMatchObject([
      {
        type: 'WalletCreatedEvent',
        payload: { id, ownerId: anOwner, currency: 'EUR', initialBalance: '100' },
      },
    ]);
    expect((body['items'] as [{ payload: object }])[0].payload).not.toHaveProperty('balance');
  });
});

/** The migrations of the service up to that time, in a separate folder. */
async function earlierMigrations(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'wallet-earlier-'));
  await cp(fileURLToPath(new URL('../migrations', import.meta.url)), folder, { recursive: true });
  const path = join(folder, 'meta', '_journal.json');
  const journal = JSON.parse(await readFile(path, 'utf8')) as {
    readonly entries: { readonly idx: number }[];
  };
  const entries = journal.entries.filter(({ idx }) => idx < 2);
  await writeFile(path, JSON.stringify({ ...journal, entries }));
  return folder;
}
