import { LimitExceededError } from '@framework/core';
import { type OperatorView, type ViewPage, readPages } from '@framework/operator';
import { type SQL, sql } from 'drizzle-orm';

import type { Transfer } from '../transfer/transfer.js';
import type { OperatedTables } from './operated-tables.js';

/** Sums are made of at most so many rows of a database, by the planner's estimate. */
const summedRowsMax = 2_000_000;
const rowsText = sql`
  select coalesce(sum(greatest(reltuples, 0)), 0)::double precision as rows from pg_class
  where oid in ('wallets'::regclass, 'transfers'::regclass, 'transfer_decisions'::regclass)`;

/** The money of one currency in a database; counts and amounts are exact. */
type Sums = Readonly<Record<'currency' | 'wallets' | 'balance' | 'inTransit' | 'money', string>>;
const sumsText = sql`
  select currency, sum(wallets)::text as wallets, trim_scale(sum(balance))::text as balance,
    trim_scale(sum(in_transit))::text as "inTransit", trim_scale(sum(balance + sent - received))::text as money
  from (
    select currency, count(*) as wallets, sum(balance) as balance, 0 as in_transit, 0 as sent, 0 as received
    from wallets group by currency
    union all
    select currency, 0, 0, coalesce(sum(amount) filter (where state = 'INITIATED'), 0), sum(amount), 0
    from transfers where state <> 'REFUNDED' group by currency
    union all
    select currency, 0, 0, 0, 0, sum(amount) from transfer_decisions where state = 'RECEIVED' group by currency
  ) as parts
  group by currency
  order by currency`;

/**
 * Per database and currency: its wallets, their balances, what is in transit from it, and the sum that transfers do not change. It
 * reads whole tables; a database with more than two million rows fails with `limit-exceeded`.
 */
export function reconciliation({ databases, wallets }: OperatedTables): OperatorView {
  return {
    name: 'reconciliation',
    summary:
      'The money of each shard per currency; "money" changes only with deposits, withdrawals and new wallets',
    read: ({ after }) =>
      readPages(databases.deliveries(), after, async ({ shards: [shard] }) => {
        if (shard === undefined) return { items: [], next: undefined };
        const database = wallets.db(shard);
        const [size] = (await database.execute<{ rows: number }>(rowsText)).rows;
        if (size === undefined || size.rows > summedRowsMax)
          throw new LimitExceededError(
            'summedRowsMax',
            summedRowsMax,
            'The tables are too large to be summed',
          );
        const { rows: items } = await database.execute<Sums>(sumsText);
        return { items, next: undefined };
      }),
  };
}

/** All transfers, the newest first of each shard. */
export function allTransfers(tables: OperatedTables): OperatorView {
  return {
    name: 'transfers',
    summary: 'Transfers by the shard of their source, the newest first',
    read: (page) => readTransfers(tables, page, { direction: 'descending' }),
  };
}

/** The transfers whose money has left its source, and was not yet recorded as arrived or refunded. */
export function transfersInTransit(tables: OperatedTables): OperatorView {
  return {
    name: 'transfers-in-transit',
    summary: 'Transfers whose money is on its way, by the shard of their source, the oldest first',
    // Literally the condition of an index.
    read: (page) => readTransfers(tables, page, { where: sql`state = 'INITIATED'`, orderBy: 'createdDate' }),
  };
}

function readTransfers(
  { databases, transfers }: OperatedTables,
  { limit, after }: ViewPage,
  which: { readonly where?: SQL; readonly orderBy?: 'createdDate'; readonly direction?: 'descending' },
): ReturnType<OperatorView['read']> {
  const sources = databases.shards.map((shard) => ({ shard, shards: [shard] }));
  return readPages(sources, after, async ({ shard }, place) => {
    const { items, next } = await transfers.findPage({ ...which, shard, limit, after: place });
    return { items: items.map(transferRow), next };
  });
}

function transferRow({ id, state, ...transfer }: Transfer): Readonly<Record<string, unknown>> {
  const { amount, currency, sourceId, destId, createdDate, updatedDate, reason } = transfer;
  return {
    id: id.value,
    state,
    amount: amount.toFixed(),
    currency,
    sourceId: sourceId.value,
    destId: destId.value,
    createdDate,
    updatedDate,
    reason,
  };
}
