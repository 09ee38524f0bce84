import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

import { defaultGroupSettings } from '../src/config/settings.js';

const reference = readFileSync(new URL('../../../docs/reference/configuration.md', import.meta.url), 'utf8');
const section = reference.slice(
  reference.indexOf('\n## Group commit\n'),
  reference.indexOf('\n## Delivery\n'),
);

test('the reference lists every setting of group commit with its default, and no other', () => {
  const rows = [...section.matchAll(/^\| `([a-z-]+)` +\| [^|]+ \| \w+ +\| ([\d,]+) +\|$/gm)];
  const documented = rows.map(([, key = '', value = '']) => [
    camelCase(key),
    Number(value.replaceAll(',', '')),
  ]);
  expect(Object.fromEntries(documented)).toEqual(defaultGroupSettings);
});

function camelCase(key: string): string {
  return key.replace(/-([a-z])/g, (_match, letter: string) => letter.toUpperCase());
}
