import { query } from '../database/bench-server.js';
import { amount } from './deposit-contender.js';
import type { DepositTarget, DepositEnvironment } from './deposit-environment.js';

/** The totals over the wallets and their events. */
interface Found {
  readonly wallets: number;
  readonly deposits: number;
  /** Wallets whose row and events do not match. */
  readonly wrong: number;
}

// A wallet was opened empty by its first event, and has had only deposits since.
const verification = `
  select count(*)::integer as wallets, coalesce(sum(deposits), 0)::integer as deposits,
    count(*) filter (where version <> deposits + 1 or versions <> version or last_version <> version or slots <> 1
      or balance <> deposits * $2::numeric or deposited <> balance or last_balance <> balance)::integer as wrong
  from wallets, lateral (
    select count(*) filter (where deposit) as deposits, count(distinct model_version) as versions,
      max(model_version) as last_version, count(distinct slot) as slots,
      coalesce(sum((payload ->> 'amount')::numeric) filter (where deposit), 0) as deposited,
      coalesce(max((payload ->> 'newBalance')::numeric) filter (where deposit), 0) as last_balance
    from eventlog.events, lateral (
      select event_type = 'WalletMoneyDepositedEvent' and model_name = 'Wallet' and namespace = 'bench'
        and action_name = $3 and (action_params ->> 'amount')::numeric = $2::numeric and not early_xid as deposit) as kind
    where model_id = wallets.id::text) as log
  where id = any($1)`;

/**
 * Checks in SQL that each deposit is once in the balance, the version and the log of its wallet, and that there is nothing else.
 *
 * @param expectedCount how many deposits were acknowledged
 * @throws Error when anything is wrong
 */
export async function verifyDeposits(
  { urls }: DepositEnvironment,
  targets: readonly DepositTarget[],
  expectedCount: number,
  actionName = 'WalletDepositMoneyAction',
): Promise<void> {
  const values = [targets.map(({ id }) => id.value), amount.toFixed(), actionName];
  const found = { wallets: 0, deposits: 0, wrong: 0 };
  for (const url of urls) {
    for (const { wallets, deposits, wrong } of await query<Found>(url, verification, values)) {
      found.wallets += wallets;
      found.deposits += deposits;
      found.wrong += wrong;
    }
  }
  if (found.wallets === targets.length && found.deposits === expectedCount && found.wrong === 0) return;
  throw new Error(
    `Of ${expectedCount} deposits to ${targets.length} wallets, ${found.deposits} are in the log of ` +
      `${found.wallets} wallets, ${found.wrong} of which are wrong`,
  );
}
