import { Big } from 'big.js';
import { rowsOf } from './database-session.js';
import type { ShardDatabases } from './start-test-service.js';

/** What one shard says at one moment, by one statement. */
const moneyOfShard = `
  select (select json_agg(json_build_object('currency', currency, 'balance', balance::text)) from wallets) as wallets,
    (select json_agg(json_build_object('id', id, 'state', state, 'currency', currency, 'amount', amount::text))
     from transfers) as transfers,
    (select json_agg(payload ->> 'transferId') from eventlog.events
     where event_type = 'WalletTransferReceivedEvent') as received`;

interface Money {
  readonly currency: string;
  readonly amount: string;
}

/**
 * All the money of the service: the balances of each shard, added up with what is in transit.
 *
 * The shards are read one after the other. A transfer that left its source and was not received when its destination was
 * read is in transit; one that was received although its source had not sent it yet when that was read counts once less.
 */
export async function moneyByCurrency({
  global,
  mexico,
}: ShardDatabases): Promise<Readonly<Record<string, string>>> {
  const shards = [];
  for (const database of [global, mexico]) shards.push((await rowsOf(database, moneyOfShard))[0] ?? {});
  const received = new Set(shards.flatMap((shard) => (shard['received'] as string[] | null) ?? []));
  const sent = shards.flatMap(
    (shard) => (shard['transfers'] as (Money & { id: string; state: string })[] | null) ?? [],
  );
  const known = new Set(sent.map(({ id }) => id));
  const unsent = [...received].filter((id) => !known.has(id));

  const sums: Record<string, Big> = {};
  const add = (currency: string, amount: Big): void => {
    sums[currency] = (sums[currency] ?? new Big(0)).plus(amount);
  };
  for (const shard of shards) {
    const wallets = (shard['wallets'] as { currency: string; balance: string }[] | null) ?? [];
    for (const { currency, balance } of wallets) add(currency, new Big(balance));
  }
  for (const { id, state, currency, amount } of sent) {
    if (state !== 'REFUNDED' && !received.has(id)) add(currency, new Big(amount));
  }
  for (const id of unsent) {
    const amounts = await Promise.all(
      [global, mexico].map((database) =>
        rowsOf(database, 'select currency, amount::text from transfers where id = $1', [id]),
      ),
    );
    for (const { currency, amount } of amounts.flat() as unknown as Money[])
      add(currency, new Big(amount).neg());
  }
  return Object.fromEntries(Object.entries(sums).map(([currency, sum]) => [currency, sum.toFixed()]));
}
