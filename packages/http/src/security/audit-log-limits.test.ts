import { existsSync } from 'node:fs';
import { mkdtemp, open, readFile, readdir, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describe, expect, onTestFinished, test, vi } from 'vitest';

import { leftBehind, unhandledIn } from '../../../core/test/left-behind.js';
import { type AuditEntry, AuditLog } from './audit-log.js';
import { checkChain } from './hash-chain.js';
import { auditSchema } from './security-settings.js';

type Handle = Awaited<ReturnType<typeof open>>;

const entry: AuditEntry = {
  time: new Date('2026-01-31T12:00:00Z'),
  requestId: 'r',
  principal: 'alice',
  address: '127.0.0.1',
  request: 'POST /wallets/w/deposit',
  idempotencyKey: null,
  input: { amount: '1' },
  status: 200,
  code: null,
  replayed: false,
};

async function auditFile(settings: object = { hashChain: true }) {
  const folder = await mkdtemp(join(tmpdir(), 'audit-limits-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, 'audit.jsonl');
  const failures: unknown[] = [];
  const openLog = (): Promise<AuditLog> =>
    AuditLog.open(auditSchema.parse({ file, ...settings }), (error) => failures.push(error), 0);
  return { folder, file, failures, openLog };
}

/** The methods of all file handles. */
async function handleMethods(file: string): Promise<Handle> {
  const handle = await open(file, 'a+');
  await handle.close();
  return Object.getPrototypeOf(handle) as Handle;
}

async function linesOf(file: string): Promise<readonly { readonly [name: string]: unknown }[]> {
  const text = await readFile(file, 'utf8');
  return text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as { readonly [name: string]: unknown });
}

/** Lets each write take only so many bytes. */
async function shortWrites(file: string, bytesMax: number) {
  const methods = await handleMethods(file);
  // oxlint-disable-next-line typescript/unbound-method -- it is called with what it belongs to
  const { write } = methods;
  const short = async function (this: Handle, bytes: Buffer) {
    return Reflect.apply(write, this, [bytes, 0, Math.min(bytesMax, bytes.byteLength)]) as ReturnType<
      Handle['write']
    >;
  };
  const spy = vi.spyOn(methods, 'write').mockImplementation(short as never);
  onTestFinished(() => spy.mockRestore());
  return spy;
}

describe('a disk that takes fewer bytes than it was given', () => {
  test.each([0, 1, 7, 100])('gets the rest after %d bytes, and the chain is whole', async (bytesMax) => {
    const { file, failures, openLog } = await auditFile();
    const log = await openLog();
    const spy = await shortWrites(file, bytesMax);
    for (const principal of ['alice', 'é€👍', 'bob']) await log.write({ ...entry, principal });
    await log.close();
    expect(spy).toHaveBeenCalledTimes(3);
    expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 3 } });
    expect((await linesOf(file)).map(({ principal }) => principal)).toEqual(['alice', 'é€👍', 'bob']);
    expect(failures).toEqual([]);
  });

  test('and then fails leaves no torn or repeated line', async () => {
    const { file, failures, openLog } = await auditFile();
    const log = await openLog();
    await log.write(entry);
    const spy = await shortWrites(file, 20);
    const methods = await handleMethods(file);
    const rest = vi.spyOn(methods, 'writeFile').mockRejectedValueOnce(new Error('The disk is full'));
    onTestFinished(() => rest.mockRestore());
    await log.write({ ...entry, principal: '€' });
    expect([log.isWritable, failures.length]).toEqual([false, 1]);
    await vi.waitFor(() => expect(log.isWritable).toBe(true), 3_000);
    spy.mockRestore();
    await log.write(entry);
    await log.close();
    expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 3 } });
  });
});

describe('the text of a client in the audit log', () => {
  test.each([
    ['x'.repeat(4_096), 'x'.repeat(4_096)],
    ['x'.repeat(4_097), `${'x'.repeat(4_096)}…`],
    ['€'.repeat(4_096), '€'.repeat(4_096)],
    ['€'.repeat(4_097), `${'€'.repeat(4_096)}…`],
  ])('is kept up to 4,096 characters', async (text, kept) => {
    const { file, openLog } = await auditFile();
    const log = await openLog();
    await log.write({ ...entry, principal: text, request: text, idempotencyKey: text, input: text.slice(2) });
    await log.close();
    expect(await linesOf(file)).toMatchObject([{ principal: kept, request: kept, idempotencyKey: kept }]);
    expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 1 } });
  });

  test.each([
    [4_096 - 2, false],
    [4_095, true],
  ])('is kept as input while its JSON has 4,096 characters: %d', async (count, isCut) => {
    const { file, openLog } = await auditFile();
    const log = await openLog();
    await log.write({ ...entry, input: 'é'.repeat(count) });
    await log.close();
    const [{ input } = {}] = await linesOf(file);
    expect(String(input).endsWith('…')).toBe(isCut);
    expect(String(input).length).toBe(isCut ? 4_097 : count);
  });

  test('goes on after a line with as many bytes as it can have', async () => {
    const { file, openLog } = await auditFile();
    const long = '👍'.repeat(4_096);
    for (let line = 0; line < 3; line++) {
      const log = await openLog();
      await log.write({ ...entry, principal: long, request: long, idempotencyKey: long, input: long });
      await log.close();
    }
    expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 3 } });
  });
});

/** How many files the process has open. */
async function openCount(): Promise<number> {
  return (await readdir('/proc/self/fd')).length;
}

describe('an audit log that is used for long', () => {
  test('leaves nothing behind with each entry and attempt, even with those that fail', async () => {
    const { openLog } = await auditFile();
    const log = await openLog();
    const left = await leftBehind(async () => {
      await log.write(entry);
      await Promise.all([log.write(entry), log.record(async () => entry)]);
      await expect(log.record(() => Promise.reject(new Error('refused')))).rejects.toThrow('refused');
    });
    expect(left).toEqual([]);
    await log.close();
  });

  test.skipIf(!existsSync('/proc/self/fd'))(
    'keeps one file open, however often it is moved away',
    async () => {
      const { file, openLog } = await auditFile();
      const log = await openLog();
      const before = await openCount();
      for (let move = 0; move < 5; move++) {
        await rename(file, `${file}.${move}`);
        await log.write(entry);
      }
      expect(await openCount()).toBeLessThan(before + 5);
      await log.close();
      expect(await openCount()).toBeLessThan(before);
    },
  );

  test.skipIf(!existsSync('/proc/self/fd'))('leaves no file open that cannot be continued', async () => {
    const { file, openLog } = await auditFile();
    const methods = await handleMethods(file);
    const stats = vi.spyOn(methods, 'stat').mockRejectedValue(new Error('The disk is away'));
    onTestFinished(() => stats.mockRestore());
    const before = await openCount();
    for (let attempt = 0; attempt < 5; attempt++) await expect(openLog()).rejects.toThrow('away');
    expect(await openCount()).toBeLessThan(before + 5);
  });
});

test('a write that fails after requests have given up on it ends no process, and is repeated', async () => {
  const { file, failures, openLog } = await auditFile({ hashChain: true, sync: true });
  const log = await openLog();
  const answered = Promise.withResolvers<void>();
  const methods = await handleMethods(file);
  const syncing = vi.spyOn(methods, 'datasync').mockReturnValueOnce(answered.promise);
  onTestFinished(() => syncing.mockRestore());
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const unhandled = await unhandledIn(async () => {
    const writing = log.write(entry);
    await vi.waitFor(() => expect(syncing).toHaveBeenCalled());
    await vi.advanceTimersByTimeAsync(5_000);
    await writing;
    expect(log.isWritable).toBe(false);
    answered.reject(new Error('The disk is full'));
    vi.useRealTimers();
    await log.close();
  });
  expect(unhandled).toEqual([]);
  expect(failures).toHaveLength(2);
  expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 1 } });
});

test('a log that can be written again stays so, however often a write has failed at once', async () => {
  const { file, failures, openLog } = await auditFile();
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const log = await openLog();
  const methods = await handleMethods(file);
  for (let round = 1; round <= 2; round++) {
    const failing = vi.spyOn(methods, 'write').mockRejectedValueOnce(new Error('The disk is full'));
    await log.write(entry);
    expect([log.isWritable, failures.length]).toEqual([false, round]);
    await vi.waitFor(() => expect(log.isWritable).toBe(true), 30_000);
    failing.mockRestore();
    // Longer than a write may take.
    await vi.advanceTimersByTimeAsync(60_000);
    expect([log.isWritable, failures.length]).toEqual([true, round]);
  }
  await log.close();
  expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 2 } });
});

test('the check of an intact audit log finds no fault where two reads of the file divide a character', async () => {
  const { file, openLog } = await auditFile();
  const log = await openLog();
  const principal = 'é€👍'.repeat(800);
  for (let line = 0; line < 30; line++) await log.write({ ...entry, principal, input: { note: principal } });
  await log.close();
  const bytes = await readFile(file);
  const borders = Array.from({ length: 6 }, (_unused, number) => bytes[65_536 * (number + 1)] ?? 0);
  // The bytes of a character after its first one.
  expect(borders.filter((byte) => byte >> 6 === 0b10)).not.toEqual([]);
  expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 30 } });
});
