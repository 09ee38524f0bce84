import { describe, expect, it, onTestFinished } from 'vitest';

import { dataDirectoryIn } from '../../src/postgres/embedded/cluster.js';
import { readPostmaster } from '../../src/postgres/embedded/postmaster.js';
import { claimForOtherProcess } from './fixtures/claim-for-other-process.js';
import { OwnerProcess } from './fixtures/owner-process.js';
import { query, serverFolder, startServer } from './fixtures/server-folder.js';
import { canDrop, without } from './fixtures/without-capabilities.js';

// What a container's root is by default: it may not look into the processes of other users, such as the server's.
const ptrace = ['sys_ptrace'] as const;

describe.skipIf(!canDrop(ptrace))('EmbeddedPostgres of a root that may not look into other processes', () => {
  it('refuses a second start while the first server is in use, and leaves that one its claim', async () => {
    const directory = await serverFolder();
    const first = await startServer(directory, { settings: { fsync: 'off' } });
    const claim = await readPostmaster(first.dataDirectory);

    await expect(startWithoutPtrace(directory)).rejects.toMatchObject({ code: 'directory-in-use' });
    expect(await readPostmaster(first.dataDirectory)).toEqual(claim);
    expect(await query(first.url('postgres'), 'select 1 as one')).toEqual([{ one: 1 }]);
  });

  it('starts although the process id of a killed server belongs to another process now', async () => {
    const directory = await serverFolder();
    const killed = await startServer(directory);
    await query(killed.url('postgres'), 'create table kept as select 42 as answer');
    await claimForOtherProcess(killed);

    const url = await startWithoutPtrace(directory);
    expect(await query(url, 'select answer from kept')).toEqual([{ answer: 42 }]);
    expect((await readPostmaster(dataDirectoryIn(directory)))?.ready).toBe(true);
  });
});

async function startWithoutPtrace(directory: string): Promise<string> {
  const owner = new OwnerProcess(directory, without(ptrace));
  onTestFinished(() => owner.kill());
  return owner.ready();
}
