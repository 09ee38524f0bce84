import { describe, expect, onTestFinished, test } from 'vitest';

import { dataDirectoryIn, readPostmaster } from '../src/cluster.js';
import { claimForOtherProcess } from './fixtures/claim-for-other-process.js';
import { OwnerProcess } from './fixtures/owner-process.js';
import { query, serverFolder, startServer } from './fixtures/server-folder.js';
import { until } from './fixtures/until.js';
import { canDrop, canRun, without } from './fixtures/without-capabilities.js';

// The default for root in a container: it may not inspect the processes of other users, such as the server's.
const ptrace = ['sys_ptrace'] as const;
const mountProc = 'mount -t proc -o hidepid=ptraceable proc /proc && exec "$@"';
const hidingOthers = ['unshare', '--mount', 'sh', '-c', mountProc, 'sh'] as const;

describe.skipIf(!canDrop(ptrace))('EmbeddedPostgres of a root user without ptrace', () => {
  test.for([
    { shows: 'shows that they exist', wrapper: [] },
    { shows: 'hides them', wrapper: hidingOthers },
  ])('refuses a second start and keeps the first claim where /proc $shows', async ({ wrapper }, context) => {
    context.skip(!canRun(wrapper), 'this process may not mount /proc');
    const directory = await serverFolder();
    const first = await startServer(directory, { settings: { fsync: 'off' } });
    const claim = await readPostmaster(first.dataDirectory);

    await expect(ownerWithoutPtrace(directory, wrapper).ready()).rejects.toMatchObject({
      code: 'directory-in-use',
    });
    expect(await readPostmaster(first.dataDirectory)).toEqual(claim);
    expect(await query(first.url('postgres'), 'select 1 as one')).toEqual([{ one: 1 }]);
  });

  test('starts even if another process now has the process id of a killed server', async () => {
    const directory = await serverFolder();
    const killed = await startServer(directory);
    await query(killed.url('postgres'), 'create table kept as select 42 as answer');
    await claimForOtherProcess(killed);

    const owner = ownerWithoutPtrace(directory);
    expect(await query(await owner.ready(), 'select answer from kept')).toEqual([{ answer: 42 }]);
    await owner.kill();
    await until('the shutdown', async () => (await readPostmaster(dataDirectoryIn(directory))) === undefined);
  });
});

function ownerWithoutPtrace(directory: string, wrapper: readonly string[] = []): OwnerProcess {
  const owner = new OwnerProcess(directory, [...wrapper, ...without(ptrace)]);
  onTestFinished(() => owner.kill());
  return owner;
}
