import { chown, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { describe, expect, onTestFinished, test } from 'vitest';

import type { EmbeddedPostgres } from '../src/index.js';
import { OwnerProcess } from './fixtures/owner-process.js';
import { query, serverFolder, startServer } from './fixtures/server-folder.js';
import { canDrop, without } from './fixtures/without-capabilities.js';

const rights = ['dac_override', 'dac_read_search'] as const;

describe('EmbeddedPostgres in a folder that cannot be used', () => {
  test('reports the fault when the folder is a file', async () => {
    const directory = join(await serverFolder(), 'file');
    await writeFile(directory, '');
    await expect(start(directory)).rejects.toMatchObject(unusable(/file already exists, mkdir/));
  });

  test.skipIf(!canDrop(rights))("refuses another user's folder", async () => {
    const directory = await serverFolder();
    await mkdir(join(directory, 'cluster', 'data'), { recursive: true });
    await chown(directory, 65_534, 65_534);
    const owner = new OwnerProcess(directory, without(rights));
    onTestFinished(() => owner.kill());
    await expect(owner.ready()).rejects.toMatchObject({ code: 'directory-unusable' });
  });

  test('reports a missing data directory', async () => {
    const directory = await serverFolder();
    await mkdir(join(directory, 'cluster'));
    await writeFile(join(directory, 'cluster', 'password'), 'secret');
    await expect(start(directory)).rejects.toMatchObject(unusable(/cluster\/data is missing/));
  });

  test('reports a missing or empty password and keeps the data', async () => {
    const directory = await serverFolder();
    const version = join(directory, 'cluster', 'data', 'PG_VERSION');
    await mkdir(join(directory, 'cluster', 'data'), { recursive: true });
    await writeFile(version, '18');
    await expect(start(directory)).rejects.toMatchObject(unusable(/cluster\/password is missing or empty/));
    await writeFile(join(directory, 'cluster', 'password'), '\n');
    await expect(start(directory)).rejects.toMatchObject(unusable(/cluster\/password is missing or empty/));
    expect(await readFile(version, 'utf8')).toBe('18');
  });

  test('fails at once when the server refuses the password, leaving it running', async () => {
    const directory = await serverFolder();
    const first = await start(directory);
    await writeFile(join(directory, 'cluster', 'password'), 'wrong');
    await expect(start(directory)).rejects.toMatchObject(unusable(/refuses the password/));
    expect(await query(first.url('postgres'), 'select 1 as one')).toEqual([{ one: 1 }]);
    await first.stop();
    await expect(start(directory)).rejects.toMatchObject(unusable(/refuses the password/));
  });
});

function start(directory: string): Promise<EmbeddedPostgres> {
  return startServer(directory, { settings: { fsync: 'off' } });
}

function unusable(message: RegExp): object {
  return { code: 'directory-unusable', message: expect.stringMatching(message) };
}
