import { v7 as uuidv7 } from 'uuid';
import { Big } from 'big.js';
import { principal } from '../../load/bench-wallets.js';
import { amount } from '../deposit-contender.js';
import type { DepositTarget } from '../deposit-environment.js';

const attemptsMax = 1_000;

/** The columns of a wallet that are read. */
export interface ReadWallet {
  readonly state: string;
  readonly version: number | string;
  readonly balance: string;
}

/** What a deposit writes after it has read the wallet: the next version, and the event as the framework would write it. */
export function handWrittenDeposit(target: DepositTarget, wallet: ReadWallet | undefined) {
  const id = target.id.value;
  if (wallet?.state !== 'OPENED') throw new Error(`Wallet ${id} is not open`);
  const expectedVersion = Number(wallet.version);
  const version = expectedVersion + 1;
  const balance = Big(wallet.balance).plus(amount).toFixed();
  const now = new Date();
  const payload = { amount: amount.toFixed(), newBalance: balance };
  const event = { ...eventOf(target, now), modelVersion: version, payload };
  return { id, expectedVersion, version, balance, now, event };
}

/** What a deposit sends if it has read nothing; the database computes the version and the payload. */
export function relativeDeposit(target: DepositTarget) {
  const now = new Date();
  return { id: target.id.value, amount: amount.toFixed(), now, event: eventOf(target, now) };
}

/** What is known about an event before the wallet has been read. */
function eventOf({ id, slot }: DepositTarget, startedDate: Date) {
  return {
    id: uuidv7(),
    actionId: uuidv7(),
    ordinal: 0,
    namespace: 'bench',
    actionName: 'WalletDepositMoneyAction',
    actionParams: { walletId: id.value, amount: amount.toFixed() },
    principal: principal.name,
    modelId: id.value,
    modelName: 'Wallet',
    eventType: 'WalletMoneyDepositedEvent',
    headers: {},
    startedDate,
    slot,
    earlyXid: false,
  };
}

/** The columns of an event in the log, in the order of {@link eventOf}, with their types, which PostgreSQL cannot always infer. */
const eventTypes = {
  id: 'uuid',
  action_id: 'uuid',
  ordinal: 'integer',
  namespace: 'text',
  action_name: 'text',
  action_params: 'jsonb',
  principal: 'text',
  model_id: 'text',
  model_name: 'text',
  event_type: 'text',
  headers: 'jsonb',
  started_date: 'timestamptz',
  slot: 'smallint',
  early_xid: 'boolean',
} as const;

/** The columns of the log: those that are known before the wallet has been read, then the version and the payload. */
export const eventColumns = [...Object.keys(eventTypes), 'model_version', 'payload'].join(', ');

/**
 * The parameters for an event.
 *
 * @param from the number of the first one
 * @param made expressions for what the database computes from the wallet; without them, both are parameters
 */
export function eventParameters(
  from: number,
  made?: { readonly modelVersion: string; readonly payload: string },
): string {
  const known = Object.values(eventTypes).map((type, index) => `$${from + index}::${type}`);
  const next = from + known.length;
  const { modelVersion, payload } = made ?? {
    modelVersion: `$${next}::bigint`,
    payload: `$${next + 1}::jsonb`,
  };
  return [...known, modelVersion, payload].join(', ');
}

/** The values of {@link eventParameters}. */
export function eventValues({ event }: { readonly event: object }): unknown[] {
  return Object.values(event);
}

/** Repeats an attempt while it returns `false`, which means that the wallet has changed in the meantime. */
export async function untilFresh(attempt: () => Promise<boolean>): Promise<void> {
  for (let count = 1; !(await attempt()); count++) {
    if (count >= attemptsMax) throw new Error(`A deposit was stale ${attemptsMax} times`);
  }
}
