import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { describeStorageAdapter } from '../../src/index.js';
import { SqliteFixture } from './sqlite-fixture.js';

describeStorageAdapter('SQLite', async () => new SqliteFixture());
describeStorageAdapter('SQLite, with group commit', async () => new SqliteFixture(), { groupCommit: true });

test('the guide states the length of the adapter', () => {
  const guide = join(import.meta.dirname, '../../../../docs/guides/write-a-storage-adapter.md');
  const [, said] = /about (\d+) lines/.exec(readFileSync(guide, 'utf8')) ?? [];
  const files = globSync('sqlite*.ts', { cwd: import.meta.dirname, exclude: ['sqlite-fixture.ts'] });
  const lines = files.map(
    (file) => readFileSync(join(import.meta.dirname, file), 'utf8').split('\n').length - 1,
  );
  const count = lines.reduce((sum, each) => sum + each, 0);
  expect(Math.abs(count - Number(said)), `the adapter has ${count} lines`).toBeLessThanOrEqual(25);
});
