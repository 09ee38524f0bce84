import type { Wallet, WalletService } from 'wallet-service';
import { type BenchServer, query } from '../database/bench-server.js';
import { openWalletService, openWallets } from '../load/bench-wallets.js';

/** The databases in which contenders deposit, and the wallet service on them. */
export interface DepositEnvironment {
  /** The URLs of the databases, one for each shard. */
  readonly urls: readonly string[];
  /** The wallet service, composed without delivery. */
  readonly service: WalletService;
  readonly close: () => Promise<void>;
}

/** A wallet to deposit to. */
export interface DepositTarget {
  readonly id: Wallet['id'];
  /** The slot of its events in the log, so that hand-written contenders need not compute it. */
  readonly slot: number;
  /** The token of its owner, which requests carry. Default: they carry none. */
  readonly token?: string;
}

/** Creates databases, and composes the wallet service on them. */
export async function openEnvironment(server: BenchServer, shardCount = 1): Promise<DepositEnvironment> {
  const urls: string[] = [];
  while (urls.length < shardCount) urls.push(await server.createDatabase());
  const service = await openWalletService(urls);
  return { urls, service, close: () => service.databases.close() };
}

/** Opens empty wallets, on each shard in turn. */
export async function openTargets(
  { urls, service }: DepositEnvironment,
  count: number,
): Promise<readonly DepositTarget[]> {
  const wallets = await openWallets(service, count);
  const ids = wallets.map(({ id }) => id.value);
  const slots = new Map<string, number>();
  for (const url of urls) {
    const rows = await query<{ model_id: string; slot: number }>(
      url,
      'select model_id, slot from eventlog.events where model_id = any($1)',
      [ids],
    );
    for (const { model_id: id, slot } of rows) slots.set(id, slot);
  }
  return wallets.map(({ id }) => ({ id, slot: slots.get(id.value) ?? Number.NaN }));
}

/** Chooses a target at random. */
export function anyOf(targets: readonly DepositTarget[]): DepositTarget {
  const target = targets[Math.floor(Math.random() * targets.length)];
  if (target === undefined) throw new Error('No wallets were opened');
  return target;
}
