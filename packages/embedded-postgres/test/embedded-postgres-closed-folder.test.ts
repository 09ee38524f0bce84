import { chmod, cp, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';

import { serverAccount } from '../src/server-account.js';
import { packagedServer, serverBinaries } from '../src/server-binaries.js';
import { query, serverFolder, startServer } from './fixtures/server-folder.js';

const rootOnLinux = process.platform === 'linux' && process.getuid?.() === 0;

describe.skipIf(!rootOnLinux)('EmbeddedPostgres below a root-only folder', () => {
  test('keeps its data there', async () => {
    const closed = await serverFolder();
    const directory = join(closed, 'server');
    const first = await startServer(directory, { settings: { fsync: 'off' } });
    await query(first.url('postgres'), 'create table kept as select 42 as answer');
    await first.stop();
    const second = await startServer(directory, { settings: { fsync: 'off' } });
    expect(await query(second.url('postgres'), 'select answer from kept')).toEqual([{ answer: 42 }]);

    expect((await stat(closed)).mode & 0o777).toBe(0o700);
    expect((await stat(second.dataDirectory)).uid).not.toBe(0);
  });

  // In addition, a cache that the server cannot read either is skipped.
  test('runs a copy of its programs, made once, when the server cannot read the originals', async () => {
    const closed = await serverFolder();
    const packaged = await packagedServer();
    const native = join(closed, 'native');
    await cp(packaged.native, native, { recursive: true, verbatimSymlinks: true });
    const cache = await serverFolder();
    await chmod(cache, 0o755);
    const account = await serverAccount('/nonexistent');
    const find = () => serverBinaries({ ...packaged, native }, account, [closed, cache]);

    const found = await Promise.all([find(), find()]);
    expect(found.map(({ postgres }) => postgres)).toEqual([
      join(cache, packaged.name, 'bin/postgres'),
      join(cache, packaged.name, 'bin/postgres'),
    ]);
    const made = await stat(join(cache, packaged.name));
    await find();
    expect((await stat(join(cache, packaged.name))).ino).toBe(made.ino);
  });
});
