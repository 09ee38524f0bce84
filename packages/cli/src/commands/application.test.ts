import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';

import { runHere } from '../../test/fixtures/command-here.js';
import { MemoryCommands, missing, parsed } from '../../test/fixtures/memory-commands.js';

const commands = new MemoryCommands();
const run = commands.run.bind(commands);
afterAll(() => commands.remove());

beforeEach(() => {
  commands.renew();
  const { transfers } = commands.application;
  for (const [shard, name] of [
    ['0/0', 't'],
    ['1/0', 'u'],
  ] as const)
    for (let n = 1; n <= 5; n++)
      transfers[shard]?.push({ id: `${name}-${n}`, state: 'sent', amount: String(n) });
});

describe('what the application adds', () => {
  test('is a view, of which pages are read until there are enough', async () => {
    const transfers = await run('transfers');
    expect(parsed(transfers)).toMatchObject({
      items: { length: 10, 0: { id: 't-1', amount: '1' } },
      failures: [],
    });
    expect(await run('view transfers')).toEqual(transfers);
    expect(parsed(await run('view'))).toEqual({
      views: [{ name: 'transfers', summary: expect.any(String) as string }],
    });
    expect((await run('transfers --output table')).stdout).toMatch(
      /^ID +STATE +AMOUNT +SHARDS\nt-1 +sent +1 /,
    );
    expect(await run('view letters')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('only transfers') as string,
    });
  });

  test('is an explanation, whose shards stand side by side', async () => {
    expect((await run('why t-1 --output table')).stdout).toMatch(
      /^The transfer waits[^]*^ +SOURCE +TARGET\nshard +0\/0 +1\/0\nstate +has nothing/m,
    );
    expect(parsed(await run('why t-1'))).toMatchObject({
      kind: 'extension',
      data: { id: 't-1' },
      sides: [{}, {}],
    });
    expect((await run('why nothing')).code).toBe(3);
  });

  test('is an invariant, which is checked in steps over all databases, however often', async () => {
    for (let time = 0; time < 2; time++) expect(await run('check amounts')).toMatchObject({ code: 0 });
    commands.application.transfers['1/0']?.splice(4, 1, { id: 'u-5', state: 'sent', amount: '-7' });
    for (let time = 0; time < 2; time++) {
      const found = await run('check amounts');
      expect(found.code).toBe(3);
      expect(parsed(found)).toMatchObject({
        invariants: [
          {
            name: 'amounts',
            examinedCount: 10,
            violationCount: 1,
            violations: [{ id: 'u-5', text: 'The amount is -7.', shards: ['1/0'] }],
            failures: [],
          },
        ],
      });
    }
    const listed = await run('check amounts --output table');
    expect(listed.stdout).toMatch(/^ {2}1\/0 u-5: The amount is -7\.$/m);
  });

  test('is an invariant that cannot be checked where a database is down, or its check fails', async () => {
    const away = await commands.runWithoutSecond('check amounts');
    expect(away.code).toBe(1);
    expect(parsed(away)).toMatchObject({ invariants: [{ examinedCount: 5, violationCount: 0, ...missing }] });
    const broken = await run('check');
    expect(broken.code).toBe(1);
    expect(parsed(broken)).toMatchObject({
      invariants: [{ name: 'amounts' }, { name: 'broken', failures: [{ code: 'internal' }] }],
    });
    expect(`${broken.stdout}${broken.stderr}`).not.toContain('canary');
    const view = await commands.runWithoutSecond('transfers');
    expect(parsed(view)).toMatchObject({ items: { length: 5 }, ...missing });
    expect(view.code).toBe(1);
  });

  test('is an invariant that is not proved if a database fails between two steps', async () => {
    let stepCount = 0;
    commands.databases.takeDown(1, ({ operation }) => operation === 'operator.overview' && ++stepCount > 1);
    const cut = await run('check amounts');
    expect([cut.code, parsed(cut)]).toMatchObject([1, { invariants: [{ examinedCount: 7, ...missing }] }]);
  });

  test('is a document, written to a file or to the output', async () => {
    const file = join(commands.folder, 'openapi.json');
    for (let time = 0; time < 2; time++) {
      expect(await run('openapi', [file])).toMatchObject({ code: 0, stdout: '' });
      expect(JSON.parse(await readFile(file, 'utf8'))).toEqual({ openapi: '3.1.0' });
    }
    expect(parsed(await run('openapi'))).toEqual({ openapi: '3.1.0' });
    expect(await run('asyncapi')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has no document asyncapi') as string,
    });
  });

  test('comes from a module, as its commands say without one', async () => {
    for (const command of ['transfers', 'view', 'view letters', 'check', 'openapi', 'asyncapi'])
      expect(await runHere([...command.split(' '), '--config', commands.plain])).toEqual({
        code: 2,
        stdout: '',
        stderr: expect.stringMatching(/come from .*: name it in framework\.operator\.module\n$/) as string,
      });
  });
});
