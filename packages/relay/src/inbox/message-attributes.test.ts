import { headers as natsHeaders } from '@nats-io/transport-node';
import { describe, expect, test } from 'vitest';

import { messageFor } from '../../test/broker-suite.js';
import { headerValue } from '../message.js';
import { type MessageHeaders, attributesOf } from './message-attributes.js';

const subject = 'Konto 7/ä%20"x" 😀';
const { attributes } = messageFor('t', subject, 1);

/** Headers with this prefix before the names of attributes, and these values. */
function headersWith(
  prefix: string,
  encode: (text: string) => unknown = (text) => text,
): readonly (readonly [string, unknown])[] {
  return Object.entries(attributes).map(([name, text]) => [prefix + name, encode(text)] as const);
}

function errorOf(headers: unknown): unknown {
  try {
    return attributesOf(headers as MessageHeaders);
  } catch (error) {
    return error;
  }
}

/** What each broker writes before names, and how it encodes values. */
const bindings: readonly (readonly [string, string, (text: string) => unknown])[] = [
  ['HTTP and NATS', 'ce-', headerValue],
  ['HTTP in capital letters', 'CE-', headerValue],
  ['Kafka', 'ce_', (text) => Buffer.from(text)],
  ['AMQP', 'cloudEvents:', (text) => text],
  ['AMQP with underscores', 'cloudEvents_', (text) => text],
  ['Redis', '', (text) => text],
];

describe('the attributes of a message', () => {
  test.each(bindings)('are the same from %s, whose other headers are left out', (_broker, prefix, encode) => {
    const others =
      prefix === ''
        ? []
        : [
            ['content-type', 'x'],
            ['traceparent', 'x'],
            ['id', 'x'],
          ];
    const entries = [...headersWith(prefix, encode), ...others] as readonly (readonly [string, unknown])[];
    expect(attributesOf(Object.fromEntries(entries))).toEqual(attributes);
    expect(attributesOf(new Map(entries))).toEqual(attributes);
    expect(attributesOf(entries.map(([name, value]) => [Buffer.from(name), value] as const))).toEqual(
      attributes,
    );
  });

  test('are read from the headers of the platform and of NATS', () => {
    const platform = new Headers();
    const nats = natsHeaders();
    for (const [name, value] of headersWith('ce-', headerValue)) {
      platform.set(name, String(value));
      nats.set(name, String(value));
    }
    expect(attributesOf(platform)).toEqual(attributes);
    expect(attributesOf(nats)).toEqual(attributes);
  });

  test('are decoded only where values are percent-encoded', () => {
    const raw = { ...attributes, subject: '100%25' };
    expect(attributesOf(raw)['subject']).toBe('100%25');
    const encoded = Object.fromEntries(Object.entries(raw).map(([name, text]) => [`ce-${name}`, text]));
    expect(attributesOf(encoded)['subject']).toBe('100%');
  });

  test('leave out the body that Redis has beside them, and names that no attribute has', () => {
    const fields = { ...attributes, data: '{}', 'not-one': 'x', ä: 'x', '': 'x' };
    expect(attributesOf(fields)).toEqual(attributes);
  });

  test.each([
    ['text', '5', '5'],
    ['a number', 5, '5'],
    ['0', 0, '0'],
    ['a large number', 2n ** 64n, '18446744073709551616'],
    ['true', true, 'true'],
    ['nothing', '', ''],
    ['bytes', Buffer.from('ü😀'), 'ü😀'],
    ['a list of one text', ['5'], '5'],
    ['a date', new Date(0), '1970-01-01T00:00:00.000Z'],
  ])('have a value that is %s as text', (_kind, value, expected) => {
    expect(attributesOf({ ...attributes, subject: value })['subject']).toBe(expected);
  });

  test.each([
    ['two values', ['1', '2'], 'ce_'],
    ['no value', [], 'ce_'],
    // Of AWS Lambda, without the list in which it has them: 0 or 48?
    ['a number in a list', [48], 'ce_'],
    ['no date', new Date(Number.NaN), 'ce_'],
    ['no text', { a: 1 }, 'ce_'],
    ['null', null, 'ce_'],
    ['bytes that are not UTF-8', Buffer.from([0xff]), 'ce_'],
    ['half of a character', '%C3', 'ce-'],
    ['a percent sign alone', '%', 'ce-'],
  ])('are unreadable if one of them is %s, which is named', (_what, value, prefix) => {
    const headers = Object.fromEntries([...headersWith(prefix), [`${prefix}subject`, value]]);
    expect(errorOf(headers)).toMatchObject({ code: 'unreadable-message', attribute: 'subject' });
  });

  test.each([
    ['no headers', {}],
    ['headers of another kind', { 'content-type': 'application/json' }],
    ['a list of texts', ['ce-specversion']],
    ['pairs of one', [['ce-specversion']]],
    ['triples', [['ce-specversion', '1.0', 'x']]],
    ['names that are numbers', [[1, '1.0']]],
    ['null', null],
    ['a text', 'ce-specversion'],
  ])('are unreadable if there are %s, because the version is missing', (_what, headers) => {
    expect(errorOf(headers)).toMatchObject({ code: 'unreadable-message', attribute: 'specversion' });
  });

  test('stay apart if long ones differ only at the end', () => {
    const long = 'x'.repeat(5_000);
    const [one, other] = ['a', 'b'].map(
      (end) => attributesOf({ ...attributes, subject: `${long}${end}` })['subject'],
    );
    expect(one).toBe(`${long}a`);
    expect(other).toBe(`${long}b`);
    const named = attributesOf({ ...attributes, [`${long}a`]: '1', [`${long}b`]: '2' });
    expect([named[`${long}a`], named[`${long}b`]]).toEqual(['1', '2']);
  });
});
