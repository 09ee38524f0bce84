import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parseFrameworkConfig } from '@framework/core';
import { defaultDeliverySettings, parseDeliverySettings } from '../src/index.js';

const reference = readFileSync(new URL('../../../docs/reference/configuration.md', import.meta.url), 'utf8');

/** The rows of the section `Delivery`: each key with its unit and its default. */
const rows = [
  ...reference
    .slice(reference.indexOf('\n## Delivery\n'), reference.indexOf('\n## Options in code\n'))
    .matchAll(/^\| `([a-z.-]+)` +\| [^|]+ \| (\w+) +\| ([\d,]+) +\|$/gm),
].map(([, key = '', unit = '', text = '']) => ({ key, unit, value: Number(text.replaceAll(',', '')) }));

test('the reference lists every setting of delivery with its default, and no other', () => {
  const { retry, ...others } = defaultDeliverySettings;
  const ofRetry = Object.entries(retry).map(([name, value]) => [`retry.${name}`, value]);
  const settings = Object.fromEntries([...Object.entries(others), ...ofRetry]);
  expect(Object.fromEntries(rows.map(({ key, value }) => [camelCase(key), value]))).toEqual(settings);
  expect(rows).toHaveLength(Object.keys(settings).length);
});

test('the reference has milliseconds as the unit exactly where the name says so', () => {
  for (const { key, unit } of rows) expect([key, unit === 'ms']).toEqual([key, key.endsWith('-ms')]);
});

test('the documented section with every default is accepted unchanged', () => {
  const retry = Object.fromEntries(
    rows.filter(({ key }) => key.startsWith('retry.')).map(({ key, value }) => [key.slice(6), value]),
  );
  const others = rows.filter(({ key }) => !key.startsWith('retry.')).map(({ key, value }) => [key, value]);
  const configs = { 'primary-config': { 'jdbc-url': 'postgres://127.0.0.1/global' } };
  const { delivery } = parseFrameworkConfig({
    framework: {
      namespace: 'com.example',
      delivery: { ...Object.fromEntries(others), retry },
      sharding: {
        'default-shard': { group: 0, member: 0 },
        groups: [{ group: 0, name: 'global', members: [{ member: 0, name: 'global-1', configs }] }],
      },
    },
  });
  expect(parseDeliverySettings(delivery)).toEqual(defaultDeliverySettings);
});

function camelCase(key: string): string {
  return key.replace(/-([a-z])/g, (_match, letter: string) => letter.toUpperCase());
}
