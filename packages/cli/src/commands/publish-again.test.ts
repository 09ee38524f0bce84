import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';

import { runHere } from '../../test/fixtures/command-here.js';
import { MemoryCommands, parsed, signed } from '../../test/fixtures/memory-commands.js';

const commands = new MemoryCommands();
afterAll(() => commands.remove());
const module = fileURLToPath(new URL('../../test/fixtures/operated-application.ts', import.meta.url));
const secret = `whsec_${Buffer.alloc(32).toString('base64')}`;

/** The versions and markers that an endpoint has received, and a configuration whose relay publishes to it, beside other relays. */
async function endpoint(status = 204, others: readonly object[] = []) {
  const received: (readonly [version: string, marker: string])[] = [];
  const server = createServer((request, response) => {
    const { 'ce-modelversion': version, 'ce-republished': marker } = request.headers;
    received.push([String(version), String(marker)]);
    request.resume();
    response.writeHead(status).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const relay = [...others, { name: 'to-partner', source: 'logical-replication', webhooks: { url, secret } }];
  return { received, config: commands.write('publishing.json', { operator: { module }, relay }) };
}

const run = (config: string, ...more: readonly string[]) =>
  runHere(['events', 'publish-again', '--config', config, ...more]);

beforeEach(async () => {
  commands.renew();
  const { first } = commands;
  await first.register('to-partner');
  await first.write('a', [1, 2, 3]);
  await first.write('b', [1]);
  first.pass('to-partner');
});

describe('events of the log', () => {
  test('are published again by the relay of the configuration, in order, and marked with the change', async () => {
    const { received, config } = await endpoint();
    const wanted = ['--relay', 'to-partner', '--model', 'a'];
    expect(parsed(await run(config, ...wanted, '--dry-run'))).toMatchObject({ dryRun: true, count: 3 });
    expect(received).toEqual([]);
    const ended = await run(config, ...wanted, '--yes', ...signed);
    expect(ended.code).toBe(0);
    const { changeIds, count } = parsed(ended) as { readonly changeIds: string[]; readonly count: number };
    expect([count, changeIds]).toEqual([3, [expect.any(String)]]);
    expect(received).toEqual(['1', '2', '3'].map((version) => [version, changeIds[0]]));
    expect(commands.first.audit).toEqual([['publish-again', 'done']]);
  });

  test('are published again while another relay of the configuration cannot be opened', async () => {
    const { received, config } = await endpoint(204, [
      { name: 'broken', webhooks: { url: 'nowhere', secret } },
    ]);
    const ended = await run(config, '--relay', 'to-partner', '--model', 'a', '--yes', ...signed);
    expect(ended.code).toBe(0);
    expect(received).toHaveLength(3);
  });

  test('are not all published again if the endpoint refuses one, and the command fails', async () => {
    const { received, config } = await endpoint(400);
    const ended = await run(config, '--relay', 'to-partner', '--model', 'a', '--yes', ...signed);
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('message-refused');
    const [first] = commands.first.log;
    expect(ended.stderr).toContain(`refuses event ${first?.id ?? ''}: `);
    expect(ended.stderr).toContain('400');
    expect(received).toHaveLength(1);
  });

  test('are not published again if there are more than the limit, which is known before the question', async () => {
    const { received, config } = await endpoint();
    const wanted = ['--relay', 'to-partner', '--model', 'a'];
    for (const more of [['--yes', ...signed], ['--dry-run']]) {
      const ended = await run(config, ...wanted, '--limit', '2', ...more);
      expect(ended.code).toBe(2);
      expect(ended.stderr).toContain('More than 2 events of a database match');
    }
    expect([received, commands.first.audit]).toEqual([[], []]);
    const ended = await run(config, ...wanted, '--limit', '3', '--yes', ...signed);
    expect(ended.code).toBe(0);
    expect(received).toHaveLength(3);
  });

  test.each([
    ['no relay', [], 'use --relay'],
    [
      'another relay',
      ['--relay', 'other', '--model', 'a'],
      'There is no relay other here: name one of the configuration, to-partner',
    ],
    ['no events', ['--relay', 'to-partner'], 'Without a filter'],
    ['no reason', ['--relay', 'to-partner', '--model', 'a', '--yes'], 'no reason'],
  ])('are not published again if %s is named', async (_what, options, message) => {
    const { received, config } = await endpoint();
    const ended = await run(config, ...options, ...(options.includes('--yes') ? [] : ['--yes', ...signed]));
    expect(ended.code).toBe(2);
    expect(ended.stderr).toContain(message);
    expect(received).toEqual([]);
  });
});
