import * as fc from 'fast-check';
import pg from 'pg';
import { type Level, pino } from 'pino';
import { describe, expect, test } from 'vitest';

import { attemptReason, errorReason, errorStack, redacted } from '@framework/http';

import { logOptions } from './log-format.js';

const long = 'x'.repeat(1_000_000);
const causes = Array.from({ length: 100 }).reduce<Error>(
  (cause) => new Error(`failed with ${long}`, { cause }),
  new Error('first'),
);

test('a stack in the log is bounded, starting with what happened and ending with where', () => {
  const text = errorStack(new TypeError(`failed with ${long}`));
  expect(text.length).toBeLessThan(7_100);
  expect(text).toMatch(/^TypeError: failed with …\n/);
  expect(text).toContain('log-format.test.ts');
});

test('the stacks and reasons of very many causes with very long messages are bounded', () => {
  expect(errorStack(causes).length).toBeLessThan(8 * 7_100);
  expect(errorStack(causes).split('\ncaused by: ')).toHaveLength(8);
  expect(errorReason(causes).length).toBeLessThan(8 * 7_100);
});

test('a bounded stack does not end with half of a surrogate pair', () => {
  for (const prefix of ['', 'x']) {
    expect(errorStack(new Error(prefix + '👍'.repeat(100_000))).isWellFormed()).toBe(true);
  }
});

test('a short stack and reason are unchanged, including those of the causes', () => {
  const inner = new Error('inner');
  const outer = new Error('outer', { cause: inner });
  expect(errorStack(outer)).toBe(`${outer.stack}\ncaused by: ${inner.stack}`);
  expect(errorReason(outer)).toBe('outer: inner');
});

const secret = fc.stringMatching(/^[A-Za-z0-9]{6,16}$/).map((text) => `s3cret${text}`);
/** What a client can put into a row: all of it may be quoted by the database. */
const rowValue = fc
  .tuple(secret, fc.constantFrom('', ' (x)', ')=(y', '", "', '\n    at row', ' is out of range'))
  .map((parts) => parts.join(''));

/** Errors of drivers and libraries, each with the secrets that it quotes. */
const leaks: Readonly<Record<string, (value: string) => Error>> = {
  'a detail about a key': (value) =>
    pgError(
      `duplicate key value violates unique constraint "wallets_pkey"`,
      '23505',
      `Key (id, owner)=(1, ${value}) already exists.`,
    ),
  'a detail in the message': (value) =>
    new Error(`Key (owner_id)=(${value}) is not present in table "owners".`),
  'a failing row': (value) =>
    new Error(`new row violates check constraint "positive": Failing row contains (1, ${value}, -5).`),
  'a value of a wrong type': (value) => pgError(`invalid input syntax for type uuid: "${value}"`, '22P02'),
  'a value, in another language': (value) =>
    pgError(`ungültige Eingabesyntax für Typ uuid: »${value}« "${value}"`, '22P02'),
  'a value out of range': (value) => pgError(`value "${value}" is out of range for type integer`, '22003'),
  'a statement of Drizzle': (value) =>
    new Error(`Failed query: insert into wallets values ($1)\nparams: 1,${value},x`),
  'a text that is not JSON': (value) => attempted(() => JSON.parse(`{"a": ${value}`)),
  'a balance': () => new Error('The balance of 777.77 MXN does not cover 888.88 MXN'),
};
/** Texts with secrets of the configuration or of a request. */
const texts: Readonly<Record<string, (value: string) => string>> = {
  'a database': (value) => `cannot connect to postgres://wallet:${value}@db:5432/wallet?sslmode=require`,
  'a broker': (value) => `amqp://wallet:p@${value}@mq:5672 refused the connection`,
  'a parameter of an address': (value) => `GET https://partner.example/hook?access=${value} answered 500`,
  'a token': (value) => `Authorization: Bearer ${value}`,
  'a token without its header': (value) => `the server refused Bearer ${value}`,
  'a signed token': (value) => `no key for eyJhbGciOiJSUzI1NiJ9.${value}.${value}`,
  cookies: (value) => `Cookie: session=1; other=${value}`,
  'a key of webhooks': (value) => `cannot sign with whsec_${value}`,
  'a password': (value) => `{"user":"wallet","password":"${value}"}`,
  'a password with a quotation mark': (value) => `{"user":"wallet","password":"a\\"${value}"}`,
  'a key of a cloud': (value) => `AWS_SECRET_ACCESS_KEY=${value}`,
  'a setting': (value) => `client_secret=${value} is refused`,
  'a key in PEM': (value) => `-----BEGIN PRIVATE KEY-----\n${value}\n-----END PRIVATE KEY-----`,
};

function pgError(message: string, code: string, detail?: string): Error {
  const error = new pg.DatabaseError(message, message.length, 'error');
  return Object.assign(error, {
    code,
    ...(detail !== undefined && { detail, where: detail, internalQuery: detail }),
  });
}

function attempted(work: () => unknown): Error {
  try {
    work();
  } catch (error) {
    if (error instanceof Error) return error;
  }
  throw new Error('it did not fail');
}

const levels = fc.constantFrom<Level>('trace', 'debug', 'info', 'warn', 'error', 'fatal');

/** What a logger of the service writes, in every way in which a line can be given something. */
function linesWith(given: Error | string, level: Level): string {
  const lines: string[] = [];
  const logger = pino({ ...logOptions, level: 'trace' }, { write: (line) => lines.push(line) });
  const wrapped = new Error(`failed: ${given instanceof Error ? given.message : given}`, { cause: given });
  for (const each of [given, wrapped]) {
    logger[level]({ error: each, err: each, nested: { errors: [each] } }, 'message');
    if (each instanceof Error) {
      logger[level](each, each.message);
      const written = { stack: errorStack(each), reason: errorReason(each), tried: attemptReason(each) };
      logger[level](written, 'message');
    } else {
      logger[level]({ each, list: [each] }, each);
    }
  }
  return lines.join('');
}

describe('no line contains', () => {
  test.each(Object.entries(leaks))('a value of a row that an error quotes: %s', (_what, errorOf) => {
    fc.assert(
      fc.property(rowValue, levels, (value, level) => {
        const text = linesWith(errorOf(value), level);
        // The whole log would be compared, and shown.
        expect(/.{0,80}(?:s3cret|777\.77|888\.88).{0,80}/.exec(text)).toBeNull();
        expect(text.includes('message')).toBe(true);
      }),
      { numRuns: 20 },
    );
  });

  test.each(Object.entries(texts))('a secret of the configuration or of a request: %s', (_what, textOf) => {
    fc.assert(
      fc.property(secret, levels, (value, level) => {
        const text = linesWith(textOf(value), level) + linesWith(new Error(textOf(value)), level);
        expect(/.{0,80}s3cret.{0,80}/.exec(text)).toBeNull();
      }),
      { numRuns: 20 },
    );
  });

  test.each([
    'params',
    'authorization',
    'set-cookie',
    'password',
    'balance',
    'payload',
    'token',
    'principal',
  ])('the field %s, at any depth that is used', (name) => {
    const lines: string[] = [];
    const logger = pino({ ...logOptions, level: 'trace' }, { write: (line) => lines.push(line) });
    const field = { [name]: 's3cret' };
    logger.trace({ ...field, one: field, two: { three: field } }, 'message');
    logger.child(field).info('message');
    expect(lines.join('')).not.toContain('s3cret');
    expect(lines.join('').match(/\[redacted\]/g)).toHaveLength(4);
  });
});

test('a line still says what happened, where, and with which statement', () => {
  const error = new Error('Failed query: insert into wallets values ($1)\nparams: 1', {
    cause: pgError(
      'duplicate key value violates unique constraint "wallets_pkey"',
      '23505',
      'Key (id)=(1) already exists.',
    ),
  });
  expect(errorReason(error)).toBe(
    'Failed query: insert into wallets values ($1)\nparams: [redacted]: duplicate key value violates unique constraint "wallets_pkey"',
  );
  expect(errorStack(error)).toMatch(
    /params: \[redacted\]\n {4}at .*log-format\.test\.ts[^]*caused by: error: duplicate/,
  );
  const told =
    'shard (1, 0) mexico-1 on db-2:5432/mexico is unavailable: password authentication failed for user "wallet"';
  expect(redacted(told)).toBe(told);
  expect(redacted(redacted(String(error)))).toBe(redacted(String(error)));
});

/** Names of fields that may hold a secret, or a value of a row or a request. */
const secretNames =
  'authorization cookie set-cookie password secret token apiKey key privateKey params parameters body payload input query ' +
  'headers claims principal balance amount detail where internalQuery connectionString';

test.each(secretNames.split(' '))('a field named %s is never written, three levels deep', (name) => {
  const lines: string[] = [];
  const logger = pino({ ...logOptions }, { write: (line) => lines.push(line) });
  const fields = { [name]: 'canary-0' };
  logger.info({ ...fields, one: fields, two: { one: fields }, other: 'kept' }, 'message');
  expect(lines.join('')).not.toContain('canary');
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({
    [name]: '[redacted]',
    one: { [name]: '[redacted]' },
    two: { one: { [name]: '[redacted]' } },
    other: 'kept',
  });
});
