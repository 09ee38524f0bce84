import { execa } from 'execa';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';

interface Manifest {
  readonly name: string;
  readonly private?: boolean;
  readonly scripts?: Readonly<Record<string, string>>;
}

const root = join(import.meta.dirname, '..');
const published = globSync('packages/*/package.json', { cwd: root })
  .map((file) => ({
    folder: dirname(file),
    manifest: JSON.parse(readFileSync(join(root, file), 'utf8')) as Manifest,
  }))
  .filter(({ manifest }) => manifest.private !== true);

test.each(published)('$folder is packed with valid entries and types for every importer', async (one) => {
  const { name, scripts } = one.manifest;
  expect(scripts).toHaveProperty('check-package');
  await execa('turbo', ['run', 'check-package', `--filter=${name}`, '--output-logs=errors-only'], {
    cwd: root,
    preferLocal: true,
  });
});
