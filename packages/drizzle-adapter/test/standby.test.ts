// @module-tag postgres
import { FaultProxy } from '@framework/testing';
import { type Account, decimal, firstShard } from '@framework/conformance';
import { expect, onTestFinished, test, vi } from 'vitest';
import { creditedAround, openAccountIn, readTwice } from './fixtures/credited-around.js';
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
  const outcome = await creditedAround(account, database, leading, async () => {
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
  const outcome = await creditedAround(account, database, one, async () => {
    await one.stop();
    await promote(other);
    return other;
  });
  expect(outcome).toEqual(readTwice);
});
