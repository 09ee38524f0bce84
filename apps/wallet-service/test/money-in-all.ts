import { readFileSync } from 'node:fs';
import { Big } from 'big.js';
import { rowsOf } from './database-session.js';
import type { ShardDatabases } from './start-test-service.js';

const operations = readFileSync(new URL('../../../docs/operations/transfers.md', import.meta.url), 'utf8');

/** A query for operators from the documents, found by the comment that it begins with. */
export function operatorQuery(name: 'money' | 'ended' | 'decisions' | 'in transit' | 'decided'): string {
  const query = new RegExp(`\`\`\`sql\\n-- ${name}\\n(.*?)\`\`\``, 's').exec(operations)?.[1];
  if (query === undefined) throw new Error(`docs/operations/transfers.md has no query '${name}'`);
  return query;
}

/**
 * All the money of the service by currency, in wallets and in transit, whichever shard is asked first.
 *
 * A transfer that ended differently from its destination's decision counts as money made, or lost.
 */
export async function moneyByCurrency({
  global,
  mexico,
}: ShardDatabases): Promise<Readonly<Record<string, string>>> {
  const inBoth = async (query: Parameters<typeof operatorQuery>[0]) => {
    const text = operatorQuery(query);
    return [...(await rowsOf(global, text)), ...(await rowsOf(mexico, text))];
  };
  const sums: Record<string, Big> = {};
  const add = (currency: unknown, amount: Big): void => {
    sums[String(currency)] = (sums[String(currency)] ?? new Big(0)).plus(amount);
  };
  for (const { currency, amount } of await inBoth('money')) add(currency, new Big(String(amount)));
  const ended = await inBoth('ended');
  const decisions = await inBoth('decisions');
  const received = new Set(
    decisions.filter(({ state }) => state === 'RECEIVED').map((decision) => decision['transfer_id']),
  );
  for (const { id, state, currency, amount } of ended) {
    if (state === 'REFUNDED' && received.has(id)) add(currency, new Big(String(amount)));
    if (state === 'COMPLETED' && !received.has(id)) add(currency, new Big(String(amount)).neg());
  }
  return Object.fromEntries(Object.entries(sums).map(([currency, sum]) => [currency, sum.toFixed()]));
}
