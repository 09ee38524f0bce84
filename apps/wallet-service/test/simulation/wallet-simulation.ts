import { ShardIdentifier, ShardedId } from '@framework/core';
import { tuned } from '@framework/events/internal';
import {
  type Choices,
  Simulation,
  type SimulationCall,
  type SimulationGiven,
  type SimulationOptions,
  type SimulationState,
  callOf,
} from '@framework/testing/simulation';
import { Big } from 'big.js';

import {
  Notification,
  NotifyRecipientAction,
  NotifyRecipientOnDeposit,
} from '../../src/notification/notify-recipient.js';
import { InitiateTransferAction } from '../../src/transfer/initiate-transfer-action.js';
import { TransferDecision } from '../../src/transfer/transfer-decision.js';
import {
  CompleteTransferAction,
  ReceiveTransfer,
  RefundTransfer,
  RefundTransferAction,
  SettleTransfer,
  SettleTransferAction,
} from '../../src/transfer/transfer-saga.js';
import { Transfer } from '../../src/transfer/transfer.js';
import { WalletTransferAction } from '../../src/transfer/wallet-transfer-action.js';
import { WalletCloseAction } from '../../src/wallet/wallet-close-action.js';
import { WalletDepositMoneyAction } from '../../src/wallet/wallet-deposit-money-action.js';
import { WalletWithdrawMoneyAction } from '../../src/wallet/wallet-withdraw-money-action.js';
import { Wallet } from '../../src/wallet/wallet.js';
import { MoneyWatch } from './money-watch.js';

interface Given extends SimulationGiven {
  readonly wallets: readonly Wallet[];
}

const global = ShardIdentifier.of(0, 0);
const mexico = ShardIdentifier.of(1, 0);
const shards = [global, mexico] as const;

/** How long the last step of a transfer may take while another shard is away. */
const lastStepMaxMs = 2_000;
/** How long processes may need, after their start or an outage, until they have their leases. */
const leasesMs = 3_000;
const start = new Date('2026-01-01T00:00:00Z');

/** The outcomes of transfers, over all runs. */
export type TransferEnds = Record<'completed' | 'refunded', number>;

/** The wallet service's actions and handlers on several processes: clients move money, and wallets are closed meanwhile. */
export function walletSimulation(
  ends: TransferEnds = { completed: 0, refunded: 0 },
  options: Partial<SimulationOptions<Given>> = {},
): Simulation<Given> {
  return new Simulation<Given>({
    models: [Wallet, Transfer, TransferDecision, Notification],
    shards,
    actions: ({ clock, repository }) => {
      const wallets = repository(Wallet);
      return [
        new WalletDepositMoneyAction(clock, wallets),
        new WalletWithdrawMoneyAction(clock, wallets),
        new WalletCloseAction(clock, wallets),
        new WalletTransferAction(clock, wallets),
        new InitiateTransferAction(clock, wallets, { shards }),
        new CompleteTransferAction(clock, wallets, repository(TransferDecision)),
        new SettleTransferAction(clock, repository(Transfer)),
        new RefundTransferAction(clock, wallets, repository(Transfer)),
        new NotifyRecipientAction(clock),
      ];
    },
    handlers: () => [
      new ReceiveTransfer(),
      new SettleTransfer(),
      new RefundTransfer(),
      new NotifyRecipientOnDeposit(),
    ],
    given: (choices) => {
      const wallets = Array.from({ length: choices.between(2, 4) }, () => {
        const shard = choices.chance(0.5) ? mexico : global;
        return walletWith(20, shard, choices.chance(0.2) ? 'USD' : 'EUR');
      });
      return { wallets, models: wallets };
    },
    call: (choices, { wallets }) => moneyCall(choices, wallets),
    watch: ({ wallets }) => {
      const money = new MoneyWatch(wallets);
      return (commit) => money.take(commit);
    },
    check: (state) => checkTransfers(state, ends),
    delivery: { retry: { attemptsMax: 100 } },
    ...options,
  });
}

/**
 * The same while one shard after the other is away: a transfer between wallets whose shards are available must not wait.
 *
 * @param lastSteps receives how long each last step of such a transfer took while the other shard was away, in milliseconds
 */
export function shardsAwaySimulation(lastSteps: number[] = []): Simulation<Given> {
  return walletSimulation(undefined, {
    given: () => {
      const wallets = [walletWith(0, global), walletWith(1_000, global), walletWith(1_000, mexico)];
      return { wallets, models: wallets };
    },
    call: (choices, { wallets: [destination, ...sources] }) =>
      callOf(InitiateTransferAction, {
        sourceId: choices.pick(sources).id,
        destId: destination!.id,
        amount: new Big(1),
      }),
    faults: ['outage'],
    latencyMs: 20,
    start,
    // Calls that wait for a shard do not use up what a handler, or the process, may have of them.
    delivery: tuned({ retry: { attemptsMax: 100 }, concurrency: 16, timeoutMs: 10_000, abandonedMax: 64 }),
    check: (state) => checkLastSteps(state, lastSteps),
  });
}

function walletWith(balance: number, shard: ShardIdentifier, currency = 'EUR'): Wallet {
  return new Wallet({
    id: ShardedId.generate(Wallet, shard),
    state: 'OPENED',
    createdDate: new Date('2025-12-31T23:59:59Z'),
    ownerId: '6f1c0c5e-6d5b-4a53-9b1e-0d5f7c2b9a10',
    currency,
    balance: new Big(balance),
  });
}

function moneyCall(choices: Choices, wallets: readonly Wallet[]): SimulationCall {
  const { id: walletId } = choices.pick(wallets);
  const others = wallets.filter(({ id }) => !id.equals(walletId));
  const { id: destId } = choices.pick(choices.chance(0.05) ? wallets : others);
  const amount = new Big(choices.between(1, 12));
  if (choices.chance(0.04)) return callOf(WalletCloseAction, { walletId });
  const kind = choices.pick(['initiate', 'initiate', 'initiate', 'deposit', 'withdraw', 'move']);
  if (kind === 'deposit')
    return callOf(WalletDepositMoneyAction, { walletId, amount, recipient: 'somebody' });
  if (kind === 'withdraw') return callOf(WalletWithdrawMoneyAction, { walletId, amount });
  if (kind === 'move') return callOf(WalletTransferAction, { sourceId: walletId, destId, amount });
  return callOf(InitiateTransferAction, { sourceId: walletId, destId, amount });
}

/** Checks that each transfer has one outcome: the one that its destination decided. */
async function checkTransfers(
  { repository, events }: SimulationState<Given>,
  ends: TransferEnds,
): Promise<void> {
  const faults: string[] = [];
  const initiated = new Set(
    events.filter(({ type }) => type === 'TransferInitiatedEvent').map(({ modelId }) => modelId),
  );
  const decisions = new Map(
    (await repository(TransferDecision).findAll()).map(({ transferId, state }) => [transferId.value, state]),
  );
  for (const { id, state } of await repository(Transfer).findAll()) {
    if (!initiated.has(id.value)) continue;
    const decision = decisions.get(id.value);
    const decided = decision && (decision === 'RECEIVED' ? 'COMPLETED' : 'REFUNDED');
    if (state !== decided) faults.push(`transfer ${id.value} is ${state} after ${decision ?? 'no decision'}`);
    ends[decided === 'COMPLETED' ? 'completed' : 'refunded']++;
  }
  if (faults.length > 0) throw new Error(faults.join('; '));
}

/** Checks that no transfer waits for its last step, once it is decided, if only shards are away that it does not need. */
function checkLastSteps({ events, wasDown }: SimulationState<Given>, lastSteps: number[]): void {
  const endedMs = new Map(
    events
      .filter(({ type }) => type === 'TransferCompletedEvent' || type === 'TransferRefundedEvent')
      .map(({ modelId, createdDate }) => [modelId, createdDate.getTime()]),
  );
  for (const { type, modelId, payload, createdDate: decided } of events) {
    if (type !== 'TransferReceivedEvent' && type !== 'TransferRefusedEvent') continue;
    const { transferId } = payload as { readonly transferId: string };
    const due = new Date(decided.getTime() + lastStepMaxMs);
    const since = new Date(decided.getTime() - leasesMs);
    const needed = [ShardedId.of(Transfer, transferId), ShardedId.of(TransferDecision, modelId)].map((id) =>
      id.resolveShardIdentifier(),
    );
    if (since < start || needed.some((shard) => wasDown(shard, since, due))) continue;
    if (!shards.some((shard) => wasDown(shard, decided, due))) continue;
    const tookMs = (endedMs.get(transferId) ?? Infinity) - decided.getTime();
    lastSteps.push(tookMs);
    if (tookMs > lastStepMaxMs)
      throw new Error(
        `transfer ${transferId} has waited ${tookMs} ms for its last step, although only shards were away that it does not need`,
      );
  }
}
