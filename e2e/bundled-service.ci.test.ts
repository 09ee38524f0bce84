import { execa } from 'execa';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';

import { query } from '../packages/drizzle-adapter/test/fixtures/query.ts';
import { EmbeddedPostgres } from '../packages/embedded-postgres/src/index.ts';

// The wallet service as `npm start` runs it: bundled into one file, with what it loads later.
const root = join(import.meta.dirname, '..');

test('the bundled wallet service streams the log to a relay', async () => {
  await execa('turbo', ['run', 'build', '--filter=wallet-service', '--output-logs=errors-only'], {
    cwd: root,
    preferLocal: true,
  });
  const server = await EmbeddedPostgres.startTemporary({ settings: { fsync: 'off', wal_level: 'logical' } });
  onTestFinished(() => server.stop());
  await server.ensureDatabase('wallets');
  const url = server.url('wallets');
  const folder = mkdtempSync(join(tmpdir(), 'e2e-bundled-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'wallet.json');
  writeFileSync(file, JSON.stringify({ framework: configurationOf(url) }));
  const service = execa('node', ['apps/wallet-service/dist/main.js'], {
    cwd: root,
    preferLocal: true,
    env: { WALLET_CONFIG: file, HOST: '127.0.0.1', PORT: '0', NODE_OPTIONS: undefined },
    reject: false,
  });
  onTestFinished(async () => {
    service.kill('SIGTERM');
    await service;
  });
  await expect
    .poll(() => query(url, 'select active from pg_replication_slots'), { timeout: 60_000 })
    .toEqual([{ active: true }]);
});

/** Both shards in one database, and a relay whose target does not exist. */
function configurationOf(url: string): object {
  const configs = { 'primary-config': { 'jdbc-url': url } };
  return {
    namespace: 'com.example.wallet',
    sharding: {
      'default-shard': { group: 0, member: 0 },
      groups: [0, 1].map((group) => ({
        group,
        name: `group-${group}`,
        members: [{ member: 0, name: `member-${group}`, configs }],
      })),
    },
    relay: [
      {
        name: 'streamed',
        source: 'logical-replication',
        webhooks: { url: 'http://127.0.0.1:1/', secret: `whsec_${Buffer.alloc(24).toString('base64')}` },
      },
    ],
  };
}
