import { slotOf } from '@framework/core/adapter';
import nodeProcess from 'node:process';
import { describe, expect, test, vi } from 'vitest';

import {
  LogWriter,
  type RelayProcess,
  isServed,
  newLog,
  quick,
  startRelay,
  streamingServer,
  streams,
} from './streamed.js';

const server = streamingServer();

/** What was warned of since the first test; each deprecation is warned of once. */
const warnings: string[] = [];
nodeProcess.on('warning', ({ message }) => warnings.push(message));

describe('a relay with logical replication', () => {
  test('publishes what was committed before and after the stream began, in order', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    await writer.write('a', 1, 2, 3);
    const process = await startRelay(url);
    await streams(process);
    await writer.write('a', 4, 5, 6);
    await writer.write('b', 1);
    await expect.poll(() => process.broker.published).toHaveLength(7);
    expect(process.broker.firstVersions('a')).toEqual([1, 2, 3, 4, 5, 6]);
    expect(process.errors).toEqual([]);
  });

  test('reads the log with SQL only now and then', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url);
    await isServed(process, writer);
    const read = vi.spyOn(process.databases.deliveries()[0]!.store.log, 'read');
    const before = process.broker.published.length;
    for (let version = 1; version <= 300; version++) await writer.write('busy', version);
    await expect.poll(() => process.broker.published.length - before).toBe(300);
    expect(read.mock.calls.length).toBeLessThan(50);
    expect(process.broker.firstVersions('busy')).toHaveLength(300);
  });

  test('publishes a transaction that commits late, whether it began before the stream or after', async () => {
    const url = await newLog(server());
    const [writer, early, late] = await Promise.all([1, 2, 3].map(() => LogWriter.connect(url)));
    // The slot exists already: it could not be created while a transaction is open.
    await (await startedOnce(url)).stop();
    await early!.query('begin');
    await early!.write('early', 1);
    const process = await startRelay(url);
    await streams(process);
    await late!.query('begin');
    await late!.write('late', 1, 2);
    for (let version = 1; version <= 20; version++) await writer!.write('a', version);
    await expect.poll(() => process.broker.firstVersions('a')).toHaveLength(20);
    expect(process.broker.published).toHaveLength(20);
    await late!.query('commit');
    await expect.poll(() => process.broker.firstVersions('late')).toEqual([1, 2]);
    await early!.query('commit');
    await expect.poll(() => process.broker.firstVersions('early')).toEqual([1]);
    await writer!.write('a', 21);
    await expect.poll(() => process.broker.firstVersions('a')).toHaveLength(21);
    expect(process.broker.published).toHaveLength(24);
  });

  test('publishes a transaction that commits after later ones were published from the stream', async () => {
    const url = await newLog(server());
    const [writer, late] = [await LogWriter.connect(url), await LogWriter.connect(url)];
    const process = await startRelay(url);
    await isServed(process, writer);
    await late.query('begin');
    await late.write('a', 1);
    // In the same slot, so that its cursor passes the open transaction.
    for (let count = 1; count <= 3; count++) {
      for (let model = 0; model < 64; model++) await writer.write(`m-${model}`, count);
      await expect.poll(() => process.broker.firstVersions('m-63')).toHaveLength(count);
    }
    expect(process.broker.firstVersions('a')).toEqual([]);
    await late.query('commit');
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1]);
    const saved = `select from eventlog.cursors join pg_current_snapshot() as now on true
      where slot = $1 and pg_snapshot_xmax(snapshot) > $2::xid8`;
    const [last] = await writer.query<{ xid: string }>(
      'select max(xid::text::bigint)::text as xid from eventlog.events',
    );
    await expect.poll(() => writer.query(saved, [slotOf('a', 16), last!.xid])).toHaveLength(1);
    const again = await startRelay(url);
    await process.stop();
    await writer.write('a', 2);
    await expect.poll(() => again.broker.firstVersions('a')).toEqual([2]);
  });

  test('publishes by cursor, and stops at once, while an open transaction keeps the slot from being created', async () => {
    const url = await newLog(server());
    const [writer, open] = [await LogWriter.connect(url), await LogWriter.connect(url)];
    await open.query('begin');
    await open.write('open', 1);
    const process = await startRelay(url);
    await writer.write('a', 1, 2);
    await expect.poll(() => process.broker.firstVersions('a')).toEqual([1, 2]);
    const creating = `select from pg_stat_activity where query like '%pg_create_logical%' and datname = current_database()
      and pid <> pg_backend_pid()`;
    await expect.poll(() => writer.query(creating)).toHaveLength(1);
    expect(process.publisher.state.sources).toMatchObject([{ kind: 'by-cursor' }]);
    const startedMs = performance.now();
    await process.stop();
    expect(performance.now() - startedMs).toBeLessThan(5_000);
    await open.query('commit');
    const next = await startRelay(url);
    await streams(next);
    await expect.poll(() => next.broker.firstVersions('open')).toEqual([1]);
  });

  test('publishes the same bytes from the stream as by cursor', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url);
    await isServed(process, writer);
    const payloads = [
      { text: 'Übung \u{1F600} \u001f "quoted" \\ \n', list: [1, 2.5, null, true], nested: { deep: {} } },
      { big: '12345678901234567890.000', empty: '' },
      'a text',
      null,
    ];
    for (const [index, payload] of payloads.entries()) await writer.writeWith('same', index + 1, payload);
    const ofStream = () =>
      process.broker.published.filter(({ attributes }) => attributes['subject'] === 'same');
    await expect.poll(() => ofStream()).toHaveLength(payloads.length);
    const again = await startRelay(url, { create: false, publication: 'nowhere' }, quick, undefined, 'again');
    const byCursor = () =>
      again.broker.published.filter(({ attributes }) => attributes['subject'] === 'same');
    await expect.poll(() => byCursor()).toHaveLength(payloads.length);
    await expect
      .poll(() => again.publisher.state.sources)
      .toMatchObject([
        { kind: 'by-cursor', reason: expect.stringContaining('There is no publication nowhere') as string },
      ]);
    expect(ofStream()).toEqual(byCursor());
  });

  test('publishes a text that begins with a byte order mark as it is', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url);
    await isServed(process, writer);
    await writer.write('\uFEFFimported', 1);
    await expect.poll(() => process.broker.firstVersions('\uFEFFimported')).toEqual([1]);
    expect(process.broker.firstVersions('imported')).toEqual([]);
  });

  test('lets the server remove its write-ahead log before the next check when much is committed', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const settings = { pollMaxMs: 10_000, cursorSaveMs: 20, readBytesMax: 200_000_000 };
    const process = await startRelay(url, {}, settings);
    await isServed(process, writer);
    let version = 0;
    const payload = 'x'.repeat(150_000);
    for (let round = 0; round < 3; round++) {
      const lsn = await writer.lsn();
      const hasConfirmed = async (): Promise<boolean> => {
        for (let count = 0; count < 10; count++) await writer.writeWith('large', ++version, payload);
        return writer.hasConfirmed(lsn);
      };
      await expect.poll(hasConfirmed).toBe(true);
    }
    await expect.poll(() => process.broker.firstVersions('large').at(-1)).toBe(version);
  });

  test('streams by a publication whatever its name is', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url, { publication: 'All "Events", today\'s' });
    await isServed(process, writer);
    expect(process.errors).toEqual([]);
  });

  test('publishes nothing of a transaction that is rolled back', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url);
    await isServed(process, writer);
    const before = process.broker.published.length;
    await writer.query('begin');
    await writer.write('a', 1);
    await writer.query('savepoint half');
    await writer.write('a', 2);
    await writer.query('rollback to half');
    await writer.query('commit');
    await writer.query('begin');
    await writer.write('b', 1);
    await writer.query('rollback');
    await writer.write('c', 1);
    await expect.poll(() => process.broker.published.length - before).toBe(2);
    expect(process.broker.firstVersions('a')).toEqual([1]);
    expect(process.broker.firstVersions('b')).toEqual([]);
  });

  test('confirms nothing to the server that the broker has not confirmed', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url, {}, quick);
    await isServed(process, writer);
    const before = await writer.lsn();
    await expect.poll(() => writer.hasConfirmed(before)).toBe(true);
    process.broker.isDown = true;
    const held = await writer.lsn();
    await writer.write('held', 1);
    const behind = await writer.lsn();
    // Other slots go on, and are checked and saved many times.
    for (let version = 1; version <= 20; version++) {
      await writer.write('other', version);
      await vi.waitFor(async () => expect((await writer.slot())?.confirmedLsn).toBeDefined());
      expect(await writer.hasConfirmed(behind)).toBe(false);
    }
    const checks = process.publisher.state.sources[0]?.slot?.retainedBytes ?? 0;
    await expect
      .poll(() => process.publisher.state.sources[0]?.slot?.retainedBytes ?? 0)
      .toBeGreaterThan(checks);
    expect(await writer.hasConfirmed(behind)).toBe(false);
    await expect.poll(() => writer.hasConfirmed(held)).toBe(true);
    process.broker.isDown = false;
    await expect.poll(() => process.broker.firstVersions('held')).toEqual([1]);
    await expect.poll(() => writer.hasConfirmed(behind)).toBe(true);
  });

  test('holds up only the model of a message that the broker refuses', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url, {}, quick);
    await isServed(process, writer);
    process.broker.refuses = ({ attributes }) =>
      attributes['subject'] === 'bad' && attributes['modelversion'] === '2';
    for (let version = 1; version <= 3; version++) {
      await writer.write('bad', version);
      await writer.write('good', version);
    }
    await expect.poll(() => process.broker.firstVersions('good')).toEqual([1, 2, 3]);
    expect(process.broker.firstVersions('bad')).toEqual([1]);
    const blocked = 'select model_id, model_version::integer as version, dead from eventlog.blocked_models';
    await expect.poll(() => writer.query(blocked)).toEqual([{ model_id: 'bad', version: 2, dead: true }]);
    const lsn = await writer.lsn();
    await expect.poll(() => writer.hasConfirmed(lsn)).toBe(true);
  });

  test('publishes transactions and events that are larger than a batch', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    const process = await startRelay(url, {}, quick);
    await isServed(process, writer);
    // Characters of several bytes, over the borders of all packets.
    const text = 'xé€👍'.repeat(10_000);
    await writer.writeWith('large', 1, { text });
    await writer.query('begin');
    for (let version = 1; version <= 2_500; version++) await writer.write('many', version);
    await writer.query('commit');
    await writer.write('large', 2);
    await expect.poll(() => process.broker.firstVersions('many')).toHaveLength(2_500);
    await expect.poll(() => process.broker.firstVersions('large')).toEqual([1, 2]);
    const large = process.broker.published.find(({ attributes }) => attributes['subject'] === 'large');
    expect(JSON.parse(new TextDecoder().decode(large?.body))).toEqual({ text });
  });

  test('sends a connection one statement at a time', () => {
    expect(warnings.filter((message) => message.includes('already executing a query'))).toEqual([]);
  });
});

/** Starts a process whose slot exists, and which streams. */
async function startedOnce(url: string): Promise<RelayProcess> {
  const process = await startRelay(url);
  await streams(process);
  return process;
}
