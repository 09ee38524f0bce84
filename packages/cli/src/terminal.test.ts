import { PassThrough, Writable } from 'node:stream';
import { expect, test } from 'vitest';

import { Terminal, cellOf, fieldLines, table } from './terminal.js';

/** A terminal, and all that was written to its streams. */
function opened(isTTY: boolean): { readonly terminal: Terminal; readonly written: () => string } {
  let text = '';
  const stream = (): Writable & { readonly isTTY: boolean } =>
    Object.assign(
      new Writable({
        write: (chunk, _encoding, done) => {
          text += String(chunk);
          done();
        },
      }),
      { isTTY },
    );
  return { terminal: new Terminal({ stdout: stream(), stderr: stream() }), written: () => text };
}

test.each([
  ['as it is', (secret: string) => secret],
  ['in a URL', (secret: string) => `postgres://u:${encodeURIComponent(secret)}@db/a`],
  ['in JSON', (secret: string) => JSON.stringify({ secret })],
])('a secret is not shown %s', (_how, textWith) => {
  const { terminal, written } = opened(true);
  const secret = 'p@ss "word"/1';
  terminal.hide('p@ss');
  terminal.hide(secret);
  for (const write of ['write', 'progress', 'fail'] as const) terminal[write](textWith(secret));
  expect(written().match(/\*{6}/g)).toHaveLength(3);
  expect(written()).not.toMatch(/word/);
});

test('the password of a URL is not shown even if nobody has named it', () => {
  const { terminal, written } = opened(false);
  terminal.fail('cannot parse postgres://wallet:canary@db-1/global');
  expect(written()).toBe('cannot parse postgres://wallet:******@db-1/global\n');
});

test('progress and tables are for people, and JSON is for programs', () => {
  const [person, program] = [opened(true), opened(false)];
  for (const { terminal } of [person, program]) terminal.progress('querying …');
  expect([person.written(), program.written()]).toEqual(['querying …\n', '']);
  expect([person.terminal.defaultFormat, program.terminal.defaultFormat]).toEqual(['table', 'json']);
});

test('the columns of a table are as wide as their widest cells', () => {
  expect(
    table(
      ['a', 'b'],
      [
        ['long', 'x'],
        ['y', 'z'],
      ],
    ),
  ).toBe('A     B\nlong  x\ny     z');
});

test('texts of others cannot change what a terminal shows', () => {
  const hostile = 'a\u001b[2Jb\r\nc\u202ed';
  for (const text of [table(['x'], [[hostile]]), fieldLines({ x: hostile }), cellOf({ hostile })])
    expect(['\u001b', '\r', '\u202e'].filter((character) => text.includes(character))).toEqual([]);
  expect(table(['x'], [[hostile]])).toBe('X\na [2Jb c d');
});

test.each(['write', 'fail', 'progress'] as const)(
  'what a message quotes cannot change what a terminal shows: %s',
  (write) => {
    const { terminal, written } = opened(true);
    terminal[write]('quotes \u001b[2J\u009b2J\u202e\rthis\nand that');
    expect(written()).toMatch(/^quotes +\[2J +2J +this\nand that\n$/);
  },
);

test('JSON has escapes for what could change what a terminal shows, and means the same', async () => {
  const { terminal, written } = opened(true);
  const value = { text: '\u001b[2J\u009b2J\u202e\u{e0041}\n' };
  terminal.writeJson(value);
  await terminal.writeExactly(value);
  expect(written()).not.toMatch(/(?!\n)[\p{Cc}\p{Cf}]/u);
  const [pretty, line] = written().split(/(?<=\})\n/);
  expect([pretty, line].map((json) => JSON.parse(json ?? '') as unknown)).toEqual([value, value]);
});

test.each(['1', 'events', '"', 'null'])('JSON stays JSON if the secret is %s', (secret) => {
  const { terminal, written } = opened(false);
  terminal.hide(secret);
  terminal.writeJson({ events: 11, text: `a ${secret} b`, nothing: null });
  expect(JSON.parse(written())).toEqual({ events: 11, text: 'a ****** b', nothing: null });
});

test.each([
  ['y\n', true],
  ['no\n', false],
  ['', false],
  ['\u0003', false],
  ['\u0004', false],
])('a person who types %j says yes: %s', async (typed, isYes) => {
  const stream = new Writable({ write: (_chunk, _encoding, done) => done() });
  const stderr = Object.assign(stream, { isTTY: true });
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  const answer = new Terminal({ stdin, stdout: stream, stderr }).confirm('Skip 5 dead letters?');
  if (typed === '') stdin.end();
  else stdin.write(typed);
  expect(await answer).toBe(isYes);
  expect([stdin.listenerCount('keypress'), stdin.isPaused() || stdin.readableEnded]).toEqual([0, true]);
});

test('a reader of messages that has gone does not end the process', () => {
  const stderr = new Writable({ write: (_chunk, _encoding, done) => done(new Error('EPIPE')) });
  const stdout = new Writable({ write: (_chunk, _encoding, done) => done() });
  new Terminal({ stdout, stderr }).fail('nobody reads this');
  expect(() => stderr.emit('error', new Error('EPIPE'))).not.toThrow();
});

test.each(['write', 'writeJson', 'writeExactly'] as const)(
  'a terminal reports a disk that takes only a part, but no reader that has gone: %s',
  async (write) => {
    const unwritten = async (code: string): Promise<unknown> => {
      const stdout = new Writable({
        highWaterMark: 1,
        write: (_chunk, _encoding, done) => done(Object.assign(new Error(code), { code })),
      });
      const stderr = new Writable({ write: (_chunk, _encoding, done) => done() });
      const terminal = new Terminal({ stdout, stderr });
      await terminal[write]('x'.repeat(10));
      await terminal[write]('y');
      return terminal.flush();
    };
    expect(await unwritten('EFBIG')).toMatchObject({ code: 'EFBIG' });
    expect([await unwritten('EPIPE'), await unwritten('ECONNRESET')]).toEqual([undefined, undefined]);
  },
);

test('data is written exactly, even if it has the text of a secret', async () => {
  const { terminal, written } = opened(false);
  terminal.hide('wallet');
  await terminal.writeExactly({ model: 'wallet' });
  terminal.write('wallet');
  expect(written()).toBe('{"model":"wallet"}\n******\n');
});
