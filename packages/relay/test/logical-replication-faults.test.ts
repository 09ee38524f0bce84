import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { FaultProxy } from '@framework/testing';
import { createTestDatabase } from '@framework/testing/postgres';
import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { kill } from 'node:process';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';

import { relayUnderRandomFaults } from './random-faults.js';
import {
  LogWriter,
  endStream,
  isServed,
  newLog,
  quick,
  startRelay,
  streamingServer,
  streamingSettings,
  streams,
} from './streamed.js';

const server = streamingServer({
  max_slot_wal_keep_size: '32MB',
  min_wal_size: '32MB',
  max_wal_size: '64MB',
});

describe('a relay whose stream ends', () => {
  test('goes on by cursor, and streams again', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url, {}, quick);
    await isServed(process, writer);
    await writer.query(endStream);
    for (let version = 1; version <= 50; version++) await writer.write('a', version);
    await expect.poll(() => process.broker.firstVersions('a')).toHaveLength(50);
    await expect.poll(async () => (await writer.slot())?.activePid ?? 0).toBeGreaterThan(0);
    await streams(process);
    expect(process.errors.join()).toContain('read by cursor');
    await writer.write('a', 51);
    await expect.poll(() => process.broker.firstVersions('a').at(-1)).toBe(51);
  });

  test('reads by cursor while the server is slow to stream, so that events are not late', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url);
    await isServed(process, writer);
    const { activePid } = (await writer.slot()) ?? {};
    kill(activePid!, 'SIGSTOP');
    onTestFinished(() => void kill(activePid!, 'SIGCONT'));
    const startedMs = performance.now();
    await writer.write('a', 1);
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1]);
    // Less than the time between two checks.
    expect(performance.now() - startedMs).toBeLessThan(5_000);
    expect(process.publisher.state.sources).toMatchObject([
      { kind: 'by-cursor', reason: expect.stringContaining('decoding') as string },
    ]);
    kill(activePid!, 'SIGCONT');
    await streams(process);
    await writer.write('a', 2);
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1, 2]);
  });

  test('creates its slot again when somebody has dropped it, and skips nothing', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url, {}, quick);
    await isServed(process, writer);
    const { name = '' } = (await writer.slot()) ?? {};
    process.broker.isDown = true;
    for (let version = 1; version <= 20; version++) await writer.write('a', version);
    await expect
      .poll(async () => {
        await writer.query(endStream);
        return writer.query('select pg_drop_replication_slot($1)', [name]).then(
          () => 'dropped',
          () => 'in use',
        );
      })
      .toBe('dropped');
    for (let version = 21; version <= 40; version++) await writer.write('a', version);
    process.broker.isDown = false;
    await expect.poll(() => process.broker.firstVersions('a')).toHaveLength(40);
    expect(process.broker.firstVersions('a').at(-1)).toBe(40);
    await expect.poll(async () => (await writer.slot())?.activePid ?? 0).toBeGreaterThan(0);
    await writer.write('a', 41);
    await expect.poll(() => process.broker.firstVersions('a').at(-1)).toBe(41);
  });

  test('replaces a slot that the server has invalidated, and skips nothing', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const first = await startRelay(url, {}, quick);
    await isServed(first, writer);
    await first.stop();
    for (let version = 1; version <= 20; version++) await writer.write('a', version);
    await expect
      .poll(async () => {
        await writer.query('select pg_logical_emit_message(true, $1, $2)', ['fill', 'x']);
        await writer.query('select pg_switch_wal()');
        await writer.query('checkpoint');
        return (await writer.slot())?.status;
      })
      .toBe('lost');
    const second = await startRelay(url, {}, quick);
    await expect.poll(() => second.broker.firstVersions('a')).toHaveLength(20);
    await streams(second);
    expect((await writer.slot())?.status).toBe('reserved');
    expect(second.errors.join()).toContain('invalidated');
    await writer.write('a', 21);
    await expect.poll(() => second.broker.firstVersions('a').at(-1)).toBe(21);
  });

  test('skips nothing when somebody takes the log out of the publication', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url, {}, quick);
    await isServed(process, writer);
    await writer.query('alter publication framework_events drop table eventlog.events');
    for (let version = 1; version <= 20; version++) await writer.write('a', version);
    await expect.poll(() => process.broker.firstVersions('a')).toHaveLength(20);
    await writer.query(endStream);
    await writer.write('a', 21);
    await expect.poll(() => process.broker.firstVersions('a').at(-1)).toBe(21);
    await expect
      .poll(() => process.publisher.state.sources[0]?.reason)
      .toContain('does not publish all inserts');
    await writer.query('drop publication framework_events');
    await streams(process);
    await writer.write('a', 22);
    await expect.poll(() => process.broker.firstVersions('a').at(-1)).toBe(22);
  });

  test('reads by cursor from a server that does not log enough, and says what to set', async () => {
    const database = await createTestDatabase();
    onTestFinished(() => database.drop());
    const process = await startRelay(database.url, {}, quick);
    const writer = await LogWriter.connect(database.url);
    await writer.write('a', 1, 2, 3);
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1, 2, 3]);
    await expect
      .poll(() => process.publisher.state.sources)
      .toMatchObject([{ kind: 'by-cursor', reason: expect.stringContaining('wal_level') as string }]);
    await expect.poll(() => process.errors).toHaveLength(1);
  });

  test('reads by cursor if the address of the stream leads to another database', async () => {
    const [url, other] = [await newLog(server()), await newLog(server())];
    const [writer, elsewhere] = [await LogWriter.connect(url), await LogWriter.connect(other)];
    const process = await startRelay(url, { url: () => other }, quick);
    await expect
      .poll(() => process.publisher.state.sources[0]?.reason)
      .toContain('does not lead to this database');
    expect(await elsewhere.slot()).toBeUndefined();
    await writer.write('a', 1);
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1]);
  });

  test('reads by cursor if its role may not stream, and says which attribute the role needs', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const prepared = await startRelay(url, {}, quick);
    await streams(prepared);
    await prepared.stop();
    await writer.query("create role reader login password 'secret'");
    await writer.query('grant usage on schema eventlog to reader');
    await writer.query('grant select on all tables in schema eventlog to reader');
    const { host, pathname } = new URL(url);
    const process = await startRelay(
      url,
      { url: () => `postgres://reader:secret@${host}${pathname}` },
      quick,
    );
    await expect
      .poll(() => process.publisher.state.sources[0]?.reason)
      .toContain('give the role the attribute REPLICATION');
    await writer.write('a', 1);
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1]);
  });
});

describe('a relay whose connection for the stream gets no answer', () => {
  test('gives its slots back when it stops meanwhile', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const { hostname, port } = new URL(url);
    const proxy = await FaultProxy.to({ host: hostname, port: Number(port) });
    onTestFinished(() => proxy.close());
    const asked = Promise.withResolvers<void>();
    proxy.judge = ({ bytes }) => {
      if (!bytes.includes('replication\0database')) return 'forward';
      proxy.silence();
      asked.resolve();
      return 'drop';
    };
    const silent = url.replace(`:${port}/`, `:${proxy.port}/`);
    const process = await startRelay(url, { url: () => silent }, quick);
    await asked.promise;
    await process.stop();
    expect(await writer.query('select from eventlog.leases where process_id is not null')).toEqual([]);
  });
});

describe('a relay whose server waits for any synchronous standby', () => {
  test('ends its stream, for which commits would wait, and says what to set', async () => {
    const url = await newLog(server());
    const [writer, operator] = [await LogWriter.connect(url), await LogWriter.connect(url)];
    const process = await startRelay(url, {}, quick);
    await isServed(process, writer);
    const reset = async (): Promise<void> => {
      await operator.query('alter system reset synchronous_standby_names');
      await operator.query('select pg_reload_conf()');
    };
    onTestFinished(reset);
    await operator.query('set synchronous_commit = local');
    await operator.query("alter system set synchronous_standby_names = '*'");
    await operator.query('select pg_reload_conf()');
    await expect
      .poll(() => process.publisher.state.sources)
      .toMatchObject([
        { kind: 'by-cursor', reason: expect.stringContaining('synchronous_standby_names') as string },
      ]);
    const streaming = 'select from pg_stat_replication';
    await expect.poll(() => operator.query(streaming)).toEqual([]);
    await reset();
    await streams(process);
    await writer.write('a', 1);
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1]);
  });
});

describe('a relay whose publication somebody changes', () => {
  test('skips no event of a transaction that the stream has in part', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url);
    await isServed(process, writer);
    await writer.query(
      "alter publication framework_events set table eventlog.events where (model_id <> 'hidden')",
    );
    await writer.query('begin');
    await writer.write('seen', 1);
    await writer.write('hidden', 1);
    await writer.query('commit');
    await expect.poll(() => process.broker.firstVersions('seen')).toEqual([1]);
    await expect.poll(() => process.broker.firstVersions('hidden')).toEqual([1]);
  });

  test('publishes the columns that the stream lacks', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url);
    await isServed(process, writer);
    const columns = `id, xid, position, action_id, ordinal, namespace, action_name, principal, model_id, model_name,
      model_version, event_type, headers, started_date, created_date, slot, epoch`;
    await writer.query(`alter publication framework_events set table eventlog.events (${columns})`);
    await writer.writeWith('a', 1, { kept: true });
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1]);
    const bodies = process.broker.published.filter(({ attributes }) => attributes['subject'] === 'a');
    expect(bodies.map(({ body }) => new TextDecoder().decode(body))).toEqual(['{"kept":true}']);
  });

  test('keeps the order of versions when the stream lacks one of them', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url);
    await isServed(process, writer);
    await writer.query('alter publication framework_events drop table eventlog.events');
    await writer.write('a', 1);
    await writer.query('alter publication framework_events add table eventlog.events');
    await writer.write('a', 2);
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1, 2]);
  });

  test('does not say that it streams when nothing is published, and creates what is missing', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url, {}, quick);
    await isServed(process, writer);
    await writer.query('drop publication framework_events');
    await expect.poll(() => process.errors.join()).toContain('There is no publication framework_events');
    await streams(process);
    await writer.write('a', 1);
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1]);
  });
});

describe('a relay that cannot connect for replication', () => {
  const withoutSenders = streamingServer({ max_wal_senders: '0' });

  test('reads by cursor, says what to set, and leaves no slot behind', async () => {
    const url = await newLog(withoutSenders());
    const process = await startRelay(url, {}, quick);
    const writer = await LogWriter.connect(url);
    await writer.write('a', 1, 2, 3);
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1, 2, 3]);
    await expect
      .poll(() => process.publisher.state.sources)
      .toMatchObject([
        { kind: 'by-cursor', reason: expect.stringContaining('increase max_wal_senders') as string },
      ]);
    expect(await writer.slot()).toBeUndefined();
    await expect.poll(() => process.errors).toHaveLength(1);
  });
});

describe('two processes with the same relay', () => {
  test('share the events while one of them streams, and the other one takes the stream over', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const first = await startRelay(url, {}, quick);
    await streams(first);
    const second = await startRelay(url, {}, quick);
    const published = () => first.broker.published.length + second.broker.published.length;
    await expect.poll(() => second.publisher.state.sources[0]?.reason).toContain('is used by');
    for (let model = 0; model < 64; model++) await writer.write(`m-${model}`, 1, 2);
    await expect.poll(published).toBeGreaterThanOrEqual(128);
    await first.stop();
    await streams(second);
    await writer.write('after', 1);
    await expect.poll(() => second.broker.firstVersions('after')).toEqual([1]);
    expect(second.errors).toEqual([]);
  });

  test('skip nothing when one of them is cut off in the middle of a batch', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const { hostname, port } = new URL(url);
    const proxy = await FaultProxy.to({ host: hostname, port: Number(port) });
    onTestFinished(() => proxy.close());
    const takenOverSoon = { ...quick, leaseMs: 1_000 };
    const first = await startRelay(url.replace(`:${port}/`, `:${proxy.port}/`), {}, takenOverSoon);
    await isServed(first, writer);
    let count = 0;
    first.broker.onPublished = () => {
      if (++count === 30) first.broker.isSilent = true;
      if (count >= 30) throw new Error('the process is gone');
    };
    const models = Array.from({ length: 20 }, (_unused, index) => `k-${index}`);
    await writer.query('begin');
    for (const model of models) await writer.write(model, 1, 2, 3, 4);
    await writer.query('commit');
    await expect.poll(() => first.broker.isSilent).toBe(true);
    await proxy.refuse();
    const second = await startRelay(url, {}, takenOverSoon);
    await expect
      .poll(() => models.every((model) => second.broker.firstVersions(model).at(-1) === 4))
      .toBe(true);
    for (const model of models) {
      const seen = [
        ...new Set([...first.broker.firstVersions(model), ...second.broker.firstVersions(model)]),
      ];
      expect(seen).toEqual([1, 2, 3, 4]);
    }
    await streams(second);
  });
});

describe('a relay whose server fails over', () => {
  test.each([
    ['without the slot', true],
    ['with a slot that is behind', false],
  ])('to a standby %s skips nothing that the standby has', async (_how, isMissing) => {
    const folder = await mkdtemp(join(tmpdir(), 'failover-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    await chmod(folder, 0o755);
    const [leading, following] = [join(folder, 'leading'), join(folder, 'following')];
    let primary = await EmbeddedPostgres.start({ directory: leading, settings: streamingSettings });
    onTestFinished(() => primary.stop());
    const url = await newLog(primary);
    const target = { host: primary.host, port: primary.port };
    const proxy = await FaultProxy.to(target);
    onTestFinished(() => proxy.close());
    const viaProxy = url.replace(`:${primary.port}/`, `:${proxy.port}/`);
    const before = await startRelay(viaProxy, {}, quick);
    await isServed(before, await LogWriter.connect(url));
    await before.stop();
    await primary.stop();

    await promisify(execFile)('cp', ['-a', leading, following]);
    const data = join(following, 'cluster', 'data');
    await writeFile(join(data, 'standby.signal'), '');
    if (isMissing) await promisify(execFile)('sh', ['-c', `rm -rf "${data}"/pg_replslot/*`]);
    primary = await EmbeddedPostgres.start({ directory: leading, settings: streamingSettings });
    target.port = primary.port;
    const process = await startRelay(viaProxy, {}, quick);
    await streams(process);
    const onPrimary = await LogWriter.connect(primary.url(new URL(url).pathname.slice(1)));
    // The standby lacks these, and gives their transaction numbers to others.
    for (let version = 1; version <= 50; version++) await onPrimary.write('lost', version);
    await expect.poll(() => process.broker.firstVersions('lost')).toHaveLength(50);

    await primary.stop();
    const standby = await EmbeddedPostgres.start({ directory: following, settings: streamingSettings });
    onTestFinished(() => standby.stop());
    const onStandby = await LogWriter.connect(standby.url(new URL(url).pathname.slice(1)));
    await onStandby.query('select pg_promote()');
    for (let version = 1; version <= 50; version++) await onStandby.write('kept', version);
    target.port = standby.port;
    proxy.cut('reset');
    for (let version = 51; version <= 60; version++) await onStandby.write('kept', version);
    await expect.poll(() => process.broker.firstVersions('kept')).toHaveLength(60);
    await streams(process);
    await onStandby.write('kept', 61);
    await expect.poll(() => process.broker.firstVersions('kept').at(-1)).toBe(61);
    expect(process.broker.firstVersions('kept')).toEqual(
      Array.from({ length: 61 }, (_unused, index) => index + 1),
    );
  });
});

describe('a relay under random faults', () => {
  test('publishes every committed version, and those of one model first in order', async () => {
    expect(await relayUnderRandomFaults(server(), 40)).toBeGreaterThan(0);
  });
});
