import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';

import { readConsole } from './index.js';

test('the files of a page are read with their types, and nothing else is', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'console-files-'));
  await mkdir(join(folder, 'assets'));
  await writeFile(join(folder, 'index.html'), '<h1>Console</h1>');
  await writeFile(join(folder, 'assets', 'page.js'), 'go()');
  await writeFile(join(folder, 'assets', 'page.js.map'), '{}');
  const files = await readConsole(folder);
  await rm(folder, { recursive: true });
  expect([...files.keys()].toSorted((one, other) => one.localeCompare(other))).toEqual([
    'assets/page.js',
    'index.html',
  ]);
  expect(files.get('assets/page.js')).toEqual({
    type: 'text/javascript; charset=utf-8',
    body: new TextEncoder().encode('go()'),
  });
});

test('a page that is not built is an error', async () => {
  await expect(readConsole(join(tmpdir(), 'no-console-is-here'))).rejects.toMatchObject({ code: 'ENOENT' });
});
