import type { BenchProcess } from './delivery-bench.js';

/**
 * Lets the log of a process show, as PostgreSQL does, that a read ended within a transaction.
 *
 * @param transactions for each the index of its first event in the log, and the index after its last one
 */
export function readInParts(
  { store }: BenchProcess,
  transactions: readonly (readonly [from: number, to: number])[],
): void {
  const read = store.log.read.bind(store.log);
  store.log.read = async (...asked) => {
    const batch = await read(...asked);
    const place = Number.parseInt(batch.next, 10);
    const partial = transactions.some(([from, to]) => from < place && place < to);
    return partial ? { ...batch, partial } : batch;
  };
}
