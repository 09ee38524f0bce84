import { ShardIdentifier, ShardedId } from '@framework/core';
import {
  type Choices,
  Simulation,
  type SimulationCall,
  type SimulationGiven,
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

/** The outcomes of transfers, over all runs. */
export type TransferEnds = Record<'completed' | 'refunded', number>;

/** The wallet service's actions and handlers on several processes: clients move money, and wallets are closed meanwhile. */
export function walletSimulation(ends: TransferEnds = { completed: 0, refunded: 0 }): Simulation<Given> {
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
        return new Wallet({
          id: ShardedId.generate(Wallet, shard),
          state: 'OPENED',
          createdDate: new Date('2025-12-31T23:59:59Z'),
          ownerId: '6f1c0c5e-6d5b-4a53-9b1e-0d5f7c2b9a10',
          currency: choices.chance(0.2) ? 'USD' : 'EUR',
          balance: new Big(20),
        });
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
