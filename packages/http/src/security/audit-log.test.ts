import { createHash } from 'node:crypto';
import { appendFile, mkdir, mkdtemp, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';

import { type AuditEntry, AuditLog } from './audit-log.js';
import { checkChain } from './hash-chain.js';
import { auditSchema } from './security-settings.js';

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

/** A file in a folder of its own, and the log that writes it. */
async function auditFile(settings: object = { hashChain: true }) {
  const folder = await mkdtemp(join(tmpdir(), 'audit-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, 'logs', 'audit.jsonl');
  await mkdir(join(folder, 'logs'));
  const failures: unknown[] = [];
  const openLog = (): Promise<AuditLog> =>
    AuditLog.open(auditSchema.parse({ file, ...settings }), (error) => failures.push(error), 0);
  const lines = async (): Promise<string[]> => (await readFile(file, 'utf8')).split('\n').slice(0, -1);
  return { folder, file, failures, openLog, lines };
}

async function writeSome(log: AuditLog, count: number): Promise<void> {
  await Promise.all(
    Array.from({ length: count }, (_unused, n) => log.write({ ...entry, requestId: `r${n}` })),
  );
}

/** Watches how files are brought to the disk; each opened file has the same method. */
async function spyOnSync(file: string) {
  const handle = await open(file);
  await handle.close();
  const spy = vi.spyOn(Object.getPrototypeOf(handle) as typeof handle, 'datasync');
  onTestFinished(() => spy.mockRestore());
  return spy;
}

describe('an audit log', () => {
  test('has a line for each entry, in the order in which they came', async () => {
    const { openLog, lines } = await auditFile({});
    const log = await openLog();
    await writeSome(log, 3);
    await log.close();
    const written = (await lines()).map((line) => JSON.parse(line) as object);
    expect(written).toMatchObject([
      { sequence: 1, requestId: 'r0', principal: 'alice', input: { amount: '1' }, status: 200 },
      { sequence: 2, requestId: 'r1' },
      { sequence: 3, requestId: 'r2' },
    ]);
  });

  test('writes entries that come one after the other', async () => {
    const { openLog, lines } = await auditFile();
    const log = await openLog();
    for (let n = 0; n < 5; n++) await log.write(entry);
    await log.close();
    expect(await lines()).toHaveLength(5);
  });

  test('writes entries that come while others are being written', async () => {
    const { openLog, file } = await auditFile();
    const log = await openLog();
    const writing = Array.from({ length: 200 }, async (_unused, n) => {
      for (let turn = 0; turn < n; turn++) await new Promise((resolve) => setImmediate(resolve));
      await log.write(entry);
    });
    await Promise.all(writing);
    await log.close();
    expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 200 } });
  });

  test('shortens what a client can make long', async () => {
    const { openLog, lines } = await auditFile();
    const log = await openLog();
    await log.write({
      ...entry,
      request: 'x'.repeat(20_000),
      input: { recipient: 'y'.repeat(60_000) },
      idempotencyKey: 'z'.repeat(16_000),
    });
    await log.close();
    expect((await lines())[0]?.length).toBeLessThan(15_000);
  });

  test('waits for the attempts that are being made when it is closed', async () => {
    const { openLog, lines } = await auditFile();
    const log = await openLog();
    const attempt = Promise.withResolvers<AuditEntry>();
    const recorded = log.record(() => attempt.promise);
    const closed = log.close();
    attempt.resolve(entry);
    await Promise.all([recorded, closed]);
    expect(await lines()).toHaveLength(1);
  });

  test('is readable by its owner only', async () => {
    const { openLog, file } = await auditFile();
    const log = await openLog();
    await log.close();
    expect((await stat(file)).mode & 0o777).toBe(0o600);
  });
});

describe('a hash chain', () => {
  test('goes on after a line with all that a client can send', async () => {
    const { openLog, file } = await auditFile();
    const long = '\u0001'.repeat(200_000);
    for (const fields of [{ idempotencyKey: long, principal: long, request: long, input: long }, {}]) {
      const log = await openLog();
      await log.write({ ...entry, ...fields });
      await log.close();
    }
    expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 2 } });
  });

  test('is whole whatever separates lines in the texts of clients', async () => {
    const { openLog, file, lines } = await auditFile();
    const log = await openLog();
    const separators = '\n\r\v\f\u0085\u2028\u2029';
    await log.write({ ...entry, principal: separators, request: separators, input: { separators } });
    await log.write(entry);
    await log.close();
    expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 2 } });
    const [line = ''] = await lines();
    expect(line).not.toMatch(/[\p{Cc}\p{Zl}\p{Zp}]/u);
    expect(JSON.parse(line)).toMatchObject({ principal: separators, input: { separators } });
  });

  test('is whole if a line has a separator of Unicode as it is', async () => {
    const { openLog, file, lines } = await auditFile();
    const log = await openLog();
    await log.write({ ...entry, principal: 'x' });
    await log.close();
    const text = (await lines())
      .join('')
      .replace(/,"hash":.*/, '}')
      .replace('"x"', '"\u2028"');
    const hash = createHash('sha256').update(text).digest('hex');
    await writeFile(file, `${text.slice(0, -1)},"hash":"${hash}"}\n`);
    expect(await checkChain(file)).toEqual({ faults: [], end: { sequence: 1, hash } });
  });

  test('goes on after a restart', async () => {
    const { openLog, file } = await auditFile();
    for (const count of [2, 3]) {
      const log = await openLog();
      await writeSome(log, count);
      await log.close();
    }
    expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 5 } });
  });

  test.each<[string, (lines: readonly string[]) => readonly string[], string]>([
    [
      'changed',
      ([a = '', b = '', c = '']) => [a, b.replace('alice', 'mallo'), c],
      'line 2 was changed, or has another key',
    ],
    ['removed', ([a = '', , c = '']) => [a, c], 'line 2 does not follow the line before it'],
    ['moved', ([a = '', b = '', c = '']) => [b, a, c], 'line 1 does not follow the line before it'],
    ['repeated', ([a = '', b = '', c = '']) => [a, b, b, c], 'line 3 does not follow the line before it'],
    [
      'without its hash',
      ([a = '', b = '', c = '']) => [a, b.replace(/,"hash":.*/, '}'), c],
      'line 2 was changed, or has another key',
    ],
    ['not a line', ([a = '', b = '', c = '']) => [a, b, 'x', c], 'line 3 is not complete'],
  ])('shows that a line is %s', async (_what, change, fault) => {
    const { openLog, file, lines } = await auditFile();
    const log = await openLog();
    await writeSome(log, 3);
    await log.close();
    await writeFile(file, `${change(await lines()).join('\n')}\n`);
    expect((await checkChain(file)).faults).toContain(fault);
  });

  test('shows that a line follows another one, whatever its input says', async () => {
    const { openLog, file, lines } = await auditFile();
    const ofOther = await auditFile();
    const [log, other] = [await openLog(), await ofOther.openLog()];
    await log.write(entry);
    await other.write({ ...entry, principal: 'mallory' });
    const input = { previous: log.end.hash };
    await other.write({ ...entry, input });
    await Promise.all([log.close(), other.close()]);
    const [, foreign = ''] = await ofOther.lines();
    await writeFile(file, `${(await lines())[0]}\n${foreign}\n`);
    expect((await checkChain(file)).faults).toEqual(['line 2 does not follow the line before it']);
  });

  test('that is cut off ends before the end that was logged', async () => {
    const { openLog, file, lines } = await auditFile();
    const log = await openLog();
    await writeSome(log, 3);
    await log.close();
    await writeFile(file, `${(await lines()).slice(0, 2).join('\n')}\n`);
    const { end, faults } = await checkChain(file);
    expect({ faults, sequence: end.sequence }).toEqual({ faults: [], sequence: 2 });
    expect(log.end).not.toEqual(end);
  });

  test.each(['', 'k'.repeat(15)])('is refused with the key %j, which is too short', async (key) => {
    const { folder, file } = await auditFile();
    const hashKeyFile = join(folder, 'key');
    await writeFile(hashKeyFile, key);
    const settings = auditSchema.parse({ file, hashChain: true, hashKeyFile });
    await expect(AuditLog.open(settings, () => undefined)).rejects.toThrow('needs at least 16');
  });

  test('with a key cannot be rebuilt without it', async () => {
    const { folder, file, openLog } = await auditFile();
    const [keyFile, otherFile] = [join(folder, 'key'), join(folder, 'other')];
    await writeFile(keyFile, 's'.repeat(16));
    await writeFile(otherFile, 'g'.repeat(16));
    const log = await AuditLog.open(
      auditSchema.parse({ file, hashChain: true, hashKeyFile: keyFile }),
      () => undefined,
    );
    await writeSome(log, 2);
    await log.close();
    expect((await checkChain(file, { keyFile })).faults).toEqual([]);
    expect((await checkChain(file, { keyFile: otherFile })).faults).toHaveLength(2);
    expect((await checkChain(file)).faults).toHaveLength(2);
    await (await openLog()).close();
  });

  test('goes on in another file when the first one is moved away', async () => {
    const { openLog, file } = await auditFile();
    const log = await openLog();
    await writeSome(log, 2);
    await rename(file, `${file}.1`);
    await writeSome(log, 2);
    await log.close();
    const { end, faults } = await checkChain(`${file}.1`);
    expect({ faults, sequence: end.sequence }).toEqual({ faults: [], sequence: 2 });
    expect(await checkChain(file, { before: end })).toMatchObject({ faults: [], end: { sequence: 4 } });
  });

  test('goes on after a line that a process has not completed', async () => {
    const { openLog, file } = await auditFile();
    const log = await openLog();
    await writeSome(log, 2);
    await log.close();
    await appendFile(file, '{"sequence":3,"time":"20');
    const again = await openLog();
    await writeSome(again, 1);
    await again.close();
    expect(await checkChain(file)).toMatchObject({
      faults: ['line 3 is not complete'],
      end: { sequence: 3 },
    });
  });
});

describe('a file that cannot be written', () => {
  test('keeps the entries, which are written once it can be', async () => {
    const { folder, file, openLog, failures } = await auditFile();
    const log = await openLog();
    await writeSome(log, 1);
    await rename(join(folder, 'logs'), join(folder, 'away'));
    await writeSome(log, 2);
    expect(log.isWritable).toBe(false);
    expect(failures).toEqual([expect.objectContaining({ code: 'ENOENT' })]);
    await mkdir(join(folder, 'logs'));
    await vi.waitFor(() => expect(log.isWritable).toBe(true), 3_000);
    expect(
      (await checkChain(file, { before: (await checkChain(join(folder, 'away', 'audit.jsonl'))).end }))
        .faults,
    ).toEqual([]);
    await log.close();
  });

  test('is one to which something else has written', async () => {
    const { file, openLog, failures } = await auditFile();
    const log = await openLog();
    await writeSome(log, 1);
    await appendFile(file, 'foreign\n');
    void log.write(entry);
    await vi.waitFor(() =>
      expect(failures).toEqual([
        expect.objectContaining({ message: expect.stringContaining('a file of its own') }),
      ]),
    );
    expect(log.isWritable).toBe(false);
    await rename(file, `${file}.1`);
    await vi.waitFor(() => expect(log.isWritable).toBe(true), 3_000);
    await log.close();
    expect(await readFile(`${file}.1`, 'utf8')).toContain('foreign');
  });

  test('has no line that occurs again in the file after it', async () => {
    const { file, openLog } = await auditFile({ hashChain: true, sync: true });
    const log = await openLog();
    await writeSome(log, 1);
    const syncing = (await spyOnSync(file)).mockRejectedValue(new Error('the disk is full'));
    await writeSome(log, 1);
    await rename(file, `${file}.1`);
    syncing.mockRestore();
    await vi.waitFor(() => expect(log.isWritable).toBe(true), 3_000);
    await log.close();
    const { end, faults } = await checkChain(`${file}.1`);
    expect({ faults, sequence: end.sequence }).toEqual({ faults: [], sequence: 1 });
    expect(await checkChain(file, { before: end })).toMatchObject({ faults: [], end: { sequence: 2 } });
  });

  test('is one that does not answer in time, and nobody waits for it', async () => {
    const { file, openLog, failures, lines } = await auditFile({ hashChain: true, sync: true });
    const log = await openLog();
    const answered = Promise.withResolvers<void>();
    (await spyOnSync(file)).mockReturnValue(answered.promise);
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const writing = log.write(entry);
    await vi.advanceTimersByTimeAsync(5_000);
    await writing;
    expect(log.isWritable).toBe(false);
    expect(failures).toEqual([expect.objectContaining({ message: expect.stringContaining('5000 ms') })]);
    await log.write(entry);
    answered.resolve();
    vi.useRealTimers();
    await vi.waitFor(() => expect(log.isWritable).toBe(true));
    await log.close();
    expect(await lines()).toHaveLength(2);
  });

  test('is tried once more when the log is closed', async () => {
    const { folder, file, openLog, failures } = await auditFile();
    const log = await openLog();
    await rename(join(folder, 'logs'), join(folder, 'away'));
    await writeSome(log, 1);
    await mkdir(join(folder, 'logs'));
    await log.close();
    expect(await checkChain(file)).toMatchObject({ faults: [], end: { sequence: 1 } });
    expect(failures).toHaveLength(1);
  });

  test('loses the lines that wait when the log is closed, and says how many', async () => {
    const { folder, openLog, failures } = await auditFile();
    const log = await openLog();
    await rename(join(folder, 'logs'), join(folder, 'away'));
    await writeSome(log, 2);
    await log.close();
    expect(failures.at(-1)).toMatchObject({ message: '2 lines were lost, because the process stops' });
  });
});

test('a body that has no JSON is noted, and lines of others are written', async () => {
  const { openLog, lines, failures } = await auditFile();
  const log = await openLog();
  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  await Promise.all(
    [{ big: 10n ** 20n }, circular, { amount: '2' }].map((input) => log.write({ ...entry, input })),
  );
  await log.close();
  const inputs = (await lines()).map((line) => (JSON.parse(line) as AuditEntry).input);
  expect(inputs).toEqual([
    { big: '100000000000000000000' },
    expect.stringMatching(/^not recorded: TypeError/),
    { amount: '2' },
  ]);
  expect(failures).toEqual([]);
});
