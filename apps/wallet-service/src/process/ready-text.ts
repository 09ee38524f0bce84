import { type FrameworkConfig, primaryConfig } from '@framework/core';

/** What the terminal shows when everything is ready: where it is, where the data is, and what to try first. */
export function readyText(url: string, { sharding }: FrameworkConfig): string {
  const shards = sharding.members.map(({ shard, name, databases }) => {
    const { host, pathname } = new URL(databases.get(primaryConfig)?.address ?? '');
    return `(${shard.group}, ${shard.member}) ${name} on ${host}${pathname}`;
  });
  const wallet = {
    country: 'MX',
    ownerId: '7c9e6679-7425-40de-944b-e07fc1f90ae7',
    currency: 'MXN',
    initialBalance: '100.00',
  };
  return [
    '',
    'The wallet service is ready.',
    '',
    `  Address  ${url}`,
    `  Docs     ${url}/docs`,
    ...shards.map((shard, index) => `  ${index === 0 ? 'Shards ' : '       '}  ${shard}`),
    `  Try      curl ${url}/wallets -H 'Content-Type: application/json' -d '${JSON.stringify(wallet)}'`,
    '',
  ].join('\n');
}
