import { type FrameworkConfig, primaryConfig } from '@framework/core';

/** What the terminal shows when everything is ready: where it is, where the data is, and what to try first. */
export function readyText(url: string, config: FrameworkConfig): string {
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
    ...shardLines(config),
    `  Try      curl ${url}/wallets -H 'Content-Type: application/json' -d '${JSON.stringify(wallet)}'`,
    '',
  ].join('\n');
}

/** The same for a process without requests. */
export function workerReadyText(config: FrameworkConfig): string {
  return ['', 'The wallet worker is ready.', '', ...shardLines(config), ''].join('\n');
}

function shardLines({ sharding }: FrameworkConfig): readonly string[] {
  return sharding.members.map(({ shard, name, databases }, index) => {
    const { host, pathname } = new URL(databases.get(primaryConfig)?.address ?? '');
    const place = `(${shard.group}, ${shard.member}) ${name} on ${host}${pathname}`;
    return `  ${index === 0 ? 'Shards ' : '       '}  ${place}`;
  });
}
