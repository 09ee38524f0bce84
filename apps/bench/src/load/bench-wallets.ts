import { parseFrameworkConfig } from '@framework/core';
import { openService } from '@framework/service';
import { Big } from 'big.js';
import { type Wallet, WalletCreateAction, type WalletService, walletService } from 'wallet-service';

/** The principal of the actions of a benchmark. */
export const principal = { name: 'bench' } as const;

const openedAtOnce = 32;

/** Composes the wallet service on one database per shard, the first for `global`, the second for Mexico. */
export async function openWalletService(
  urls: readonly string[],
  options?: { readonly maximumPoolSize?: number },
): Promise<WalletService> {
  const service = openService(walletService, parseFrameworkConfig(serviceConfig(urls, options)));
  await service.databases.ready();
  return service;
}

/** The configuration of such a service, as it would be in a file. */
export function serviceConfig(
  urls: readonly string[],
  {
    maximumPoolSize = 20,
    security = {},
    http = {},
  }: { readonly maximumPoolSize?: number; readonly security?: object; readonly http?: object } = {},
): unknown {
  const groups = urls.map((url, group) => ({
    group,
    name: `group-${group}`,
    members: [
      {
        member: 0,
        name: `member-${group}`,
        configs: { primaryConfig: { jdbcUrl: url, maximumPoolSize } },
      },
    ],
  }));
  return {
    framework: {
      namespace: 'bench',
      sharding: { defaultShard: { group: 0, member: 0 }, groups },
      security,
      http,
    },
  };
}

/**
 * Opens empty wallets, on each shard in turn.
 *
 * @param owners those of the wallets, in turn. Default: another one for each.
 */
export async function openWallets(
  { executor, databases }: WalletService,
  count: number,
  owners: readonly string[] = [],
): Promise<readonly Wallet[]> {
  const countries = databases.shards.length > 1 ? ['DE', 'MX'] : ['DE'];
  const wallets: Wallet[] = [];
  while (wallets.length < count) {
    const left = Math.min(openedAtOnce, count - wallets.length);
    const opened = Array.from({ length: left }, (_, index) =>
      executor.execute(principal, WalletCreateAction, {
        country: countries[index % countries.length] ?? 'DE',
        ownerId: owners[(wallets.length + index) % owners.length] ?? crypto.randomUUID(),
        currency: 'EUR',
        initialBalance: Big(0),
      }),
    );
    wallets.push(...(await Promise.all(opened)));
  }
  return wallets;
}
