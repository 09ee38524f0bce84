import { parseFrameworkConfig } from '@framework/core';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

import { parseSection } from '@framework/http';
import { httpSchema } from './amount-limits.js';

const parseHttpSettings = (section: Readonly<Record<string, unknown>>) =>
  parseSection('http', httpSchema, section);

const page = readFileSync(new URL('../../../../docs/operations/limits.md', import.meta.url), 'utf8');

/** The rows of the page: each key below `framework.http.limits`, with the value that its default says. */
const documented = Object.fromEntries(
  [...page.matchAll(/^\| `([a-z-]+)` +\| .+ \| ([^|]+?) +\|$/gm)].map(([, key = '', text = '']) => [
    key,
    valueOf(text),
  ]),
);

test('the page of limits lists every setting with its default, and no other', () => {
  const { unlimitedAddresses, ...limits } = parseHttpSettings({}).limits;
  const settings = Object.fromEntries(
    Object.entries(limits).map(([name, value]) => [
      name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`),
      value instanceof Map ? [...value] : value,
    ]),
  );
  expect(documented).toEqual({
    ...settings,
    'shared-by': 'none',
    amounts: 'none',
    'unlimited-addresses': unlimitedAddresses,
    'trusted-proxies': 'none',
  });
});

function valueOf(text: string): unknown {
  const rate = /^([\d,]+) in (\d+) s$/.exec(text);
  if (rate !== null) return { requests: numberOf(rate[1]), seconds: numberOf(rate[2]) };
  if (/^[\d,]+$/.test(text)) return numberOf(text);
  return text.startsWith('`') ? [...text.matchAll(/`([^`]+)`/g)].map(([, each]) => each) : text;
}

function numberOf(text = ''): number {
  return Number(text.replaceAll(',', ''));
}

test.each([
  ['limits.amounts', { EUR: '1000', XXL: '1' }, 'must have an ISO 4217 code'],
  ['limits.amounts', { EUR: 10.5 }, 'must have an ISO 4217 code'],
  ['limits.amounts', { EUR: '-1' }, 'must have an ISO 4217 code'],
])('the value of %s may not be %j', (path, value, message) => {
  const [section = '', key = ''] = path.split('.');
  expect(() => sectionOf({ [section]: { [key]: value } })).toThrow(
    new RegExp(`framework\\.http\\.${path}: .*${message}`),
  );
});

test('maximum amounts are exact, whether they are written as whole numbers or in quotes', () => {
  const { amounts } = sectionOf({ limits: { amounts: { EUR: '0.10', JPY: 1_000_000 } } }).limits;
  expect([...amounts].map(([currency, maximum]) => `${currency} ${maximum.toFixed()}`)).toEqual([
    'EUR 0.1',
    'JPY 1000000',
  ]);
});

function sectionOf(http: object): ReturnType<typeof parseHttpSettings> {
  const configs = { 'primary-config': { 'jdbc-url': 'postgres://127.0.0.1/global' } };
  const groups = [{ group: 0, name: 'global', members: [{ member: 0, name: 'global-1', configs }] }];
  const sharding = { 'default-shard': { group: 0, member: 0 }, groups };
  return parseHttpSettings(parseFrameworkConfig({ framework: { namespace: 'x', sharding, http } }).http);
}
