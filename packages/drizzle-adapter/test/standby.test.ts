// @module-tag postgres
import { FaultProxy } from '@framework/testing';
import { type Account, type SuiteContext, decimal, firstShard } from '@framework/conformance';
import type { EmbeddedPostgres } from '@framework/embedded-postgres';
import { expect, onTestFinished, test, vi } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { promote, serverWithStandby, twinStandbys } from './fixtures/standby.js';

const database = 'wallet';
const key = { idempotencyKey: 'withdraw' };
const keyScope = { key: 'withdraw', principal: 'auditor', namespace: 'conformance.suite' };
const unavailable = { code: 'shard-unavailable', shard: firstShard, retryable: true };
const settings = { 'statement-timeout-ms': 2_000, 'acquisition-timeout-ms': 1_000, 'minimum-idle': 0 };

test("a standby behind the primary's name serves nothing until it is promoted, and then answers a repeat", async () => {
  const opening = Promise.withResolvers<Account>();
  const servers = await serverWithStandby(database, (url) => openAccountIn(url).then(opening.resolve));
  const account = await opening.promise;
  const leading = await servers.startLeading();
  const target = { host: leading.host, port: leading.port };
  const proxy = await FaultProxy.to(target);
  onTestFinished(() => proxy.close());
  const url = leading.url(database).replace(`:${leading.port}/`, `:${proxy.port}/`);
  const secondary = { 'secondary-config': { 'jdbc-url': servers.standby.url(database) } };
  const member = { group: 0, member: 0, url, settings, configs: secondary };
  const registry = openRegistry([member]);
  await registry.ready();
  const suite = suiteOn(registry, { retry: { attemptsMax: 1 } });
  await suite.credit(account, '100');
  const answer = await suite.withdraw(account, '100', key);
  expect(answer).toMatchObject({ version: 3, balance: decimal('0') });

  // The standby has not replayed what the primary had written when it died.
  await leading.stop();
  target.port = servers.standby.port;
  proxy.cut('reset');
  await expect(suite.withdraw(account, '100', key)).rejects.toMatchObject(unavailable);
  await expect(suite.accounts.getById(account.id)).rejects.toMatchObject(unavailable);
  expect(await registry.status()).toMatchObject([{ ready: false }]);
  const started = openRegistry([member], { migrate: 'off' });
  const startedReady = vi.fn<() => void>();
  const ready = started.ready().then(startedReady);
  ready.catch(() => undefined);
  await expect(suiteOn(started).withdraw(account, '100', key)).rejects.toMatchObject(unavailable);

  // A further config of the member may lead to the standby, but what is not found there may exist on the primary.
  const model = { name: 'Account', id: account.id.value };
  const replica = registry.transactionManager(firstShard, 'secondaryConfig');
  expect((await replica.log.findByModel(model, { limit: 5 })).items).toHaveLength(1);
  await expect(replica.keys.find(keyScope)).rejects.toMatchObject(unavailable);
  expect(startedReady).not.toHaveBeenCalled();

  await servers.takeOver();
  await ready;
  expect(await suite.withdraw(account, '100', key)).toEqual(answer);
  expect(await suiteOn(started).withdraw(account, '100', key)).toEqual(answer);
  expect(await replica.keys.find(keyScope)).toMatchObject({ actionName: 'WithdrawAction' });
  expect(await registry.status()).toMatchObject([{ ready: true }]);
});

test('an update is stale if a takeover lost the version that it read, even if another writer reused the number', async () => {
  const opening = Promise.withResolvers<Account>();
  const servers = await serverWithStandby(database, (url) => openAccountIn(url).then(opening.resolve));
  const account = await opening.promise;
  const leading = await servers.startLeading();
  const outcome = await creditedAround(account, leading, async () => {
    await leading.stop();
    await servers.takeOverWithLosses();
    return servers.standby;
  });
  expect(outcome).toEqual(readTwice);
});

test('an update is stale if a takeover lost the version that it read, even on a timeline of the same number', async () => {
  const opening = Promise.withResolvers<Account>();
  const [one, other] = await twinStandbys(database, (url) => openAccountIn(url).then(opening.resolve));
  const account = await opening.promise;
  await promote(one);
  const outcome = await creditedAround(account, one, async () => {
    await one.stop();
    await promote(other);
    return other;
  });
  expect(outcome).toEqual(readTwice);
});

/** Opens an account in a database, and closes the connections to the database. */
async function openAccountIn(url: string): Promise<Account> {
  const registry = openRegistry([{ group: 0, member: 0, url }]);
  await registry.ready();
  const account = await suiteOn(registry).openAccount(firstShard);
  await registry.close();
  return account;
}

interface Outcome {
  /** The balances that the late action has read. */
  readonly seen: readonly string[];
  readonly balance: string;
  readonly version: number;
}

/** The outcome if the late action reads again after the takeover, so that no credit is lost. */
const readTwice: Outcome = { seen: [decimal('100'), decimal('7')], balance: decimal('8'), version: 3 };

/**
 * Makes one process read a version that a takeover loses, and commit after another process has committed one with the same
 * number.
 */
async function creditedAround(
  account: Account,
  leading: EmbeddedPostgres,
  takeOver: () => Promise<EmbeddedPostgres>,
): Promise<Outcome> {
  const { id } = account;
  const target = { host: leading.host, port: leading.port };
  const proxy = await FaultProxy.to(target);
  onTestFinished(() => proxy.close());
  const url = leading.url(database).replace(`:${leading.port}/`, `:${proxy.port}/`);
  const processes = [1, 2].map(() => openRegistry([{ group: 0, member: 0, url, settings }]));
  await Promise.all(processes.map((registry) => registry.ready()));
  const [slow, fast] = processes.map((registry) => suiteOn(registry)) as [SuiteContext, SuiteContext];
  await slow.credit(account, '100');
  const taken = Promise.withResolvers<void>();
  const seen: string[] = [];
  const late = slow.stage(async (plan) => {
    const read = await slow.accounts.getById(id);
    if (seen.push(read.balance) === 1) await taken.promise;
    plan.update(read.credit('1'));
  });
  await vi.waitFor(() => expect(seen).toHaveLength(1));

  const { port } = await takeOver();
  target.port = port;
  proxy.cut('reset');
  const again = (): Promise<unknown> => fast.credit(account, '7').catch((error: unknown) => error);
  await expect.poll(again, { timeout: 30_000 }).toMatchObject({ version: 2, balance: decimal('7') });
  taken.resolve();
  await late;
  const { balance, version } = await fast.accounts.getById(id);
  return { seen, balance, version };
}
