import { type ActionExecutor, ShardIdentifier, ShardedId, parseFrameworkConfig } from '@framework/core';
import { Delivery } from '@framework/events';
import { FaultProxy, seededRandom } from '@framework/testing';
import { openService } from '@framework/service';
import { Big } from 'big.js';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import { walletService } from '../src/wallet-service.js';
import type { WalletService } from '../src/composition.js';
import { InitiateTransferAction } from '../src/transfer/initiate-transfer-action.js';
import {
  CompleteTransferAction,
  ReceiveTransfer,
  RefundTransfer,
  SettleTransfer,
} from '../src/transfer/transfer-saga.js';
import type { Transfer } from '../src/transfer/transfer.js';
import { WalletCloseAction } from '../src/wallet/wallet-close-action.js';
import { WalletCreateAction } from '../src/wallet/wallet-create-action.js';
import { WalletError } from '../src/wallet/wallet-error.js';
import { Wallet } from '../src/wallet/wallet.js';
import { createShardDatabases } from './database-logins.js';
import { rowsOf } from './database-session.js';
import { moneyByCurrency } from './money-in-all.js';
import { seed } from './seed.js';
import { type ShardDatabases, configTree } from './start-test-service.js';
import { anOwner } from './wallet-client.js';

const roundCount = 20;
const transfersPerRound = 4;
/** Long enough to take over slots that the previous process has left without giving them back. */
const lifeMs = 900;
const leaseMs = 300;
const principal = { name: 'wallet-service' };

/** Which shards a process has in its configuration: those of an unfinished rollout, or of a mistake. */
const configurations = ['both', 'global', 'mexico'] as const;
type Configuration = (typeof configurations)[number];

/** Where a process dies: before it sends a step, or right after the step is committed. */
const deaths = ['before', 'after', 'never'] as const;

let shards: ShardDatabases;
let proxy: FaultProxy;
/** Commits what clients and operators do; delivers nothing, and reaches the databases without faults. */
let client: WalletService;

beforeAll(async () => {
  shards = await createShardDatabases();
  proxy = await FaultProxy.to(shards.mexico);
  client = openService(walletService, parseFrameworkConfig(configTree(shards)), { delivers: false });
  await client.databases.ready();
});
afterAll(async () => {
  await client.delivery.stop();
  await client.databases.close();
  await proxy.close();
  await Promise.all([shards.global.drop(), shards.mexico.drop()]);
});

test(
  `transfers end once and money stays constant, whatever stops between two steps (seed ${seed})`,
  { timeout: 240_000 },
  async () => {
    const random = seededRandom(seed);
    const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)]!;
    const wallets = await openWallets();
    const money = await moneyByCurrency(shards);
    const transfers: Transfer[] = [];
    const counts: Record<string, number> = {};
    const count = (what: string): void => void (counts[what] = (counts[what] ?? 0) + 1);

    for (let round = 0; round < roundCount; round++) {
      const [configuration, death] = [pick(configurations), pick(deaths)];
      const isCut = random() < 0.3;
      await (isCut ? proxy.refuse() : proxy.accept());
      // Without the last steps, decided transfers stay in transit.
      const process = new Process(configuration, {
        death,
        stepsMax: 1 + Math.floor(random() * 4),
        ends: random() < 0.5,
      });
      for (let n = 0; n < transfersPerRound; n++) {
        const [sourceId, destId] = [pick(wallets.sources), pick(wallets.all)];
        const amount = new Big(1 + Math.floor(random() * 9));
        const transfer = await initiate({ sourceId, destId, amount });
        if (transfer !== undefined) transfers.push(transfer);
      }
      await process.end();
      if (process.isDead) count(`died ${death} a step`);
      if (isCut) count('cut off');
      if (configuration !== 'both') count('part of the configuration');
      // A decision now may differ from the earlier one.
      if (random() < 0.3 && wallets.closing.length > 0) await close(wallets.closing.shift()!);
      if (random() < 0.5 && transfers.length > 0)
        await decideByHand(pick(transfers), pick(['again', undefined]));
      expect(await moneyByCurrency(shards), `after round ${round}`).toEqual(money);
    }

    await proxy.accept();
    const last = new Process('both', { death: 'never', stepsMax: 0, ends: true });
    const inTransit = `select id from transfers where state = 'INITIATED'`;
    await vi.waitFor(async () => expect(await inBoth(inTransit)).toEqual([]), {
      timeout: 60_000,
      interval: 100,
    });
    await last.end();
    expect(await moneyByCurrency(shards)).toEqual(money);
    await expectOneEndEach(transfers);
    await expectBalancesOfHistories();
    process.stdout.write(`${transfers.length} transfers: ${JSON.stringify(counts)}\n`);
  },
);

/** One process that delivers, until it dies or is ended. */
class Process {
  isDead = false;
  readonly #service: WalletService;
  readonly #delivery: Delivery;
  readonly #died: Promise<void>;

  /**
   * @param plan.stepsMax how many steps it takes before it dies
   * @param plan.ends whether it has the handlers of the last steps
   */
  constructor(
    configuration: Configuration,
    plan: { readonly death: (typeof deaths)[number]; readonly stepsMax: number; readonly ends: boolean },
  ) {
    const { death, stepsMax, ends } = plan;
    this.#service = openService(walletService, parseFrameworkConfig(treeOf(configuration)), {
      delivers: false,
    });
    const { executor, databases } = this.#service;
    let die!: () => void;
    this.#died = new Promise((resolve) => (die = resolve));
    let stepCount = 0;
    const execute = async (...step: Parameters<ActionExecutor['execute']>): Promise<unknown> => {
      const isLast = ++stepCount >= stepsMax && death !== 'never';
      if (!this.isDead && (!isLast || death === 'after')) {
        const result = await executor.execute(...step);
        if (!isLast) return result;
      }
      this.isDead = true;
      die();
      return new Promise(() => undefined);
    };
    this.#delivery = new Delivery({
      databases,
      // Faults are the purpose of this test.
      onError: () => undefined,
      onAttemptFailed: () => undefined,
      executor: {
        onCommit: (listener) => executor.onCommit(listener),
        execute: execute as ActionExecutor['execute'],
      },
      handlers: [new ReceiveTransfer(), ...(ends ? [new SettleTransfer(), new RefundTransfer()] : [])],
      settings: {
        leaseMs,
        pollMaxMs: 50,
        cursorSaveMs: 60_000,
        retry: { attemptsMax: 1_000, backoffBaseMs: 50, backoffMaxMs: 100 },
      },
    });
    this.#delivery.start();
  }

  async end(): Promise<void> {
    await Promise.race([this.#died, delay(lifeMs)]);
    await this.#delivery.stop({ timeoutMs: this.isDead ? 1 : 500 });
    await this.#service.delivery.stop();
    await this.#service.databases.close();
  }
}

/** The configuration as a tree. Mexico is behind the proxy, with short timeouts for when it does not answer. */
function treeOf(configuration: Configuration): unknown {
  const mexico = { 'acquisition-timeout-ms': 1_000, 'statement-timeout-ms': 1_000 };
  const tree = configTree(shards, { mexicoPort: proxy.port, mexico }) as {
    framework: { sharding: { 'default-shard': object; groups: { group: number; name: string }[] } };
  };
  const { sharding } = tree.framework;
  if (configuration !== 'both') {
    sharding.groups = sharding.groups.filter(({ name }) => name === configuration);
    sharding['default-shard'] = { group: sharding.groups[0]!.group, member: 0 };
  }
  return tree;
}

async function openWallets() {
  const sources = await Promise.all(['DE', 'MX', 'DE', 'MX'].map((country) => open(country)));
  const closing = await Promise.all(['MX', 'DE', 'MX', 'DE', 'MX', 'MX'].map((country) => open(country)));
  const foreign = [await open('MX', 'USD'), await open('DE', 'USD')];
  const unknown = ShardedId.generate(Wallet, ShardIdentifier.of(1, 0));
  // Wallets that will be closed are sources, too: money must be refunded to them.
  return {
    sources: [...sources, ...closing],
    closing: [...closing],
    all: [...sources, ...closing, ...closing, ...foreign, unknown],
  };
}

async function open(country: string, currency = 'EUR'): Promise<ShardedId<Wallet>> {
  const wallet = { country, ownerId: anOwner, currency, initialBalance: new Big(1_000) };
  return (await client.executor.execute(principal, WalletCreateAction, wallet)).id;
}

/** The transfer, unless the source's rules refuse it. */
async function initiate(params: {
  readonly sourceId: ShardedId<Wallet>;
  readonly destId: ShardedId<Wallet>;
  readonly amount: Big;
}): Promise<Transfer | undefined> {
  try {
    return await client.executor.execute(principal, InitiateTransferAction, params);
  } catch (error) {
    if (error instanceof WalletError) return undefined;
    throw error;
  }
}

async function close(walletId: ShardedId<Wallet>): Promise<void> {
  await client.executor.execute(principal, WalletCloseAction, { walletId });
}

/** What an operator may do to help. */
async function decideByHand(
  { id: transferId, destId, amount, currency, state }: Transfer,
  key: string | undefined,
): Promise<void> {
  expect(state).toBe('INITIATED');
  const params = { transferId, destId, amount, currency };
  const handledEvent = {
    handler: 'by-hand',
    eventId: transferId.value,
    shard: transferId.resolveShardIdentifier(),
  };
  const keyed = key === undefined ? {} : { idempotencyKey: `${key} ${transferId.value}` };
  const configuration = { ...keyed, handledEvent };
  await client.executor.execute(principal, CompleteTransferAction, params, configuration);
}

/** Each debit has exactly one credit or one refund, whichever its destination decided. */
async function expectOneEndEach(transfers: readonly Transfer[]): Promise<void> {
  const ends = await inBoth(`
    select payload ->> 'transferId' || ' COMPLETED' as id from eventlog.events
    where event_type = 'WalletTransferReceivedEvent'
    union all
    select model_id || ' REFUNDED' from eventlog.events where event_type = 'TransferRefundedEvent'`);
  expect(ends).toEqual(await inBoth(`select id::text || ' ' || state as id from transfers`));
  expect(ends).toHaveLength(transfers.length);
  const decisions = `select transfer_id || case state when 'RECEIVED' then ' COMPLETED' else ' REFUNDED' end as id
    from transfer_decisions`;
  expect(await inBoth(decisions)).toEqual(ends);
}

/** The balance of each wallet matches its own events. */
async function expectBalancesOfHistories(): Promise<void> {
  const wrong = await inBoth(`
    select id from wallets where balance <> (
      select sum(coalesce((payload ->> 'initialBalance')::numeric, 0) +
        case event_type when 'WalletMoneyDepositedEvent' then 1 when 'WalletMoneyWithdrawnEvent' then -1 else 0 end *
        coalesce((payload ->> 'amount')::numeric, 0))
      from eventlog.events where model_id = wallets.id::text and model_name = 'Wallet')`);
  expect(wrong).toEqual([]);
}

/** The ids that a query finds in both databases, sorted. */
async function inBoth(query: string): Promise<readonly string[]> {
  const rows = await Promise.all([shards.global, shards.mexico].map((database) => rowsOf(database, query)));
  return rows
    .flat()
    .map(({ id }) => String(id))
    .toSorted();
}
