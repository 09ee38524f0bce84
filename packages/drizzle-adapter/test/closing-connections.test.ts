import type { FaultProxy } from '@framework/testing';
import { firstShard } from '@framework/conformance';
import { expect, test } from 'vitest';
import { emptyDatabase } from './fixtures/empty-database.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { isSent, proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';

/** The message that a client sends before it closes its connection. */
const goodbye = Buffer.from([0x58, 0, 0, 0, 4]);
const settings = { 'statement-timeout-ms': 500, 'acquisition-timeout-ms': 1_000 };
const patience = { timeout: 10_000, interval: 50 };

test.each(['reads', 'writes'] as const)(
  'a caller that %s learns why its connection was refused, even if the network goes silent while closing it',
  async (what) => {
    const database = await emptyDatabase();
    const { proxy, url } = await proxied(database);
    const registry = openRegistry([{ group: 0, member: 0, url, settings }]);
    await registry.ready();
    await query(database.url, 'update eventlog.shards set released_date = now()');
    const suite = suiteOn(registry);
    fallSilentAtGoodbye(proxy);
    const work = what === 'reads' ? suite.accounts.findAll() : suite.openAccount(firstShard);
    await expect(work).rejects.toMatchObject({ code: 'shard-unavailable', kind: 'other-shards' });
  },
);

test('the readiness check is answered when the network goes silent right after it', async () => {
  const { proxy, url } = await proxied(await emptyDatabase());
  const registry = openRegistry([{ group: 0, member: 0, url, settings }]);
  await registry.ready();
  fallSilentAtGoodbye(proxy);
  expect(await registry.status()).toMatchObject([{ ready: true }]);
});

test('a database is retried when the network goes silent while a refused connection closes', async () => {
  const { proxy, url } = await proxied(await emptyDatabase());
  const { isSilent } = fallSilentAtGoodbye(proxy);
  const registry = openRegistry([{ group: 0, member: 0, url: `${url}_missing`, settings }]);
  await expect.poll(isSilent, patience).toBe(true);
  const before = proxy.connectionCount;
  await expect.poll(() => proxy.connectionCount, patience).toBeGreaterThan(before);
  await registry.close();
});

/** Silences the network when the next client says goodbye, which the server does not receive. */
function fallSilentAtGoodbye(proxy: FaultProxy): { readonly isSilent: () => boolean } {
  let silent = false;
  proxy.judge = (message) => {
    if (silent || !isSent(message, goodbye)) return 'forward';
    silent = true;
    proxy.silence();
    return 'drop';
  };
  return { isSilent: () => silent };
}
