import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, test, vi } from 'vitest';

const packages = ['conformance', 'core', 'drizzle-adapter', 'embedded-postgres', 'events', 'testing'];

function importOn(node: string): Promise<unknown> {
  const versions = { value: { ...process.versions, node } };
  vi.stubGlobal('process', Object.create(process, { versions }));
  vi.resetModules();
  return import('../src/index.js');
}

describe('importing the package', () => {
  afterEach(() => vi.unstubAllGlobals());

  test.each(['20.19.5', '22.17.1'])('is refused on Node %s, with the required version', async (node) => {
    await expect(importOn(node)).rejects.toMatchObject({
      code: 'invariant-violation',
      message: `Node ${node} is too old for @framework/core: install Node 22.18 or newer`,
    });
  });

  test('succeeds on the oldest Node that it names', async () => {
    await expect(importOn('22.18.0')).resolves.toHaveProperty('ActionExecutor');
  });

  test.each(packages)('needs the version of Node that the engines field of %s names', (name) => {
    const manifest = readFileSync(new URL(`../../${name}/package.json`, import.meta.url), 'utf8');
    expect(JSON.parse(manifest)).toMatchObject({ engines: { node: '>=22.18' } });
  });
});
