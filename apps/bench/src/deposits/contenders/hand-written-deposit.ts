import { v7 as uuidv7 } from 'uuid';
import { Big } from 'big.js';
import { principal } from '../../load/bench-wallets.js';
import { amount } from '../deposit-contender.js';
import type { DepositTarget } from '../deposit-environment.js';

const attemptsMax = 1_000;

/** What is read of a wallet. */
export interface ReadWallet {
  readonly state: string;
  readonly version: number | string;
  readonly balance: string;
}

/** What a deposit writes: the wallet's next version, and its event as the framework would write it. */
export function handWrittenDeposit({ id, slot }: DepositTarget, wallet: ReadWallet | undefined) {
  if (wallet?.state !== 'OPENED') throw new Error(`Wallet ${id.value} is not open`);
  const expectedVersion = Number(wallet.version);
  const version = expectedVersion + 1;
  const balance = Big(wallet.balance).plus(amount).toFixed();
  const now = new Date();
  const event = {
    id: uuidv7(),
    actionId: uuidv7(),
    ordinal: 0,
    namespace: 'bench',
    actionName: 'WalletDepositMoneyAction',
    actionParams: { walletId: id.value, amount: amount.toFixed() },
    principal: principal.name,
    modelId: id.value,
    modelName: 'Wallet',
    modelVersion: version,
    eventType: 'WalletMoneyDepositedEvent',
    payload: { amount: amount.toFixed(), newBalance: balance },
    headers: {},
    startedDate: now,
    slot,
    earlyXid: false,
  };
  return { id: id.value, expectedVersion, version, balance, now, event };
}

/** The columns of the log that {@link eventValues} are for. */
export const eventColumns =
  'id, action_id, ordinal, namespace, action_name, action_params, principal, model_id, model_name, model_version, ' +
  'event_type, payload, headers, started_date, slot, early_xid';

/** The parameters for an event, typed because nothing else may tell their types. */
export function eventParameters(from: number): string {
  const types = ['uuid', 'uuid', 'integer', 'text', 'text', 'jsonb', 'text', 'text', 'text', 'bigint'];
  types.push('text', 'jsonb', 'jsonb', 'timestamptz', 'smallint', 'boolean');
  return types.map((type, index) => `$${from + index}::${type}`).join(', ');
}

/** The values of {@link eventParameters}. */
export function eventValues({ event }: ReturnType<typeof handWrittenDeposit>): unknown[] {
  return Object.values(event);
}

/** Runs an attempt again as long as another one was faster; `false` says so. */
export async function untilFresh(attempt: () => Promise<boolean>): Promise<void> {
  for (let count = 1; !(await attempt()); count++) {
    if (count >= attemptsMax) throw new Error(`A deposit was stale ${attemptsMax} times`);
  }
}
