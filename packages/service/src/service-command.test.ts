import { parseFrameworkConfig } from '@framework/core';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';

import { AuditLog, auditSchema } from '@framework/http/security';

import { helpDesk } from '../test/help-desk.js';
import { type OperatorCommand, serviceCommand } from './service-command.js';

const operatorCommand = (words: readonly string[]): OperatorCommand | string | undefined =>
  serviceCommand(helpDesk, words);

test('a service without arguments runs no command', () => {
  expect(operatorCommand([])).toBeUndefined();
});

test.each([
  ['migrate'],
  ['asyncapi events.json'],
  ['audit audit.jsonl'],
  [`audit audit.jsonl 12:${'0'.repeat(64)}`],
  ['roles print'],
  ['roles apply'],
  ['adopt 0/0'],
  ['adopt 0/1 255/63'],
  ['release 1/0'],
])('the command %s is accepted', (words) => {
  expect(operatorCommand(words.split(' '))).toHaveProperty('run');
});

test.each([
  ['adpot'],
  ['adopt'],
  ['adopt 0'],
  ['adopt 256/0'],
  ['adopt 0/64'],
  ['release'],
  ['release 1/0 mexico'],
  ['migrate all'],
  ['roles'],
  ['roles grant'],
  ['roles print apply'],
  ['audit'],
  ['audit audit.jsonl 12'],
  ['asyncapi'],
  ['asyncapi events.json more.json'],
])('the command %s is answered with the usage', (words) => {
  expect(operatorCommand(words.split(' '))).toMatch(/adopt 0\/1.*release 1\/0/s);
});

test('a command for databases needs a configuration', async () => {
  const command = operatorCommand(['migrate']);
  const run = typeof command === 'object' ? command.run(undefined, () => undefined) : undefined;
  await expect(run).rejects.toThrow('HELP_DESK_CONFIG is missing');
});

test('the document of the events is written to a file, with the namespace and the brokers of the configuration', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'asyncapi-'));
  const file = join(folder, 'events.json');
  const command = operatorCommand(['asyncapi', file]);
  if (typeof command !== 'object') throw new Error('the command is not accepted');
  const config = parseFrameworkConfig({
    framework: {
      namespace: 'com.example.other',
      sharding: oneShard,
      relay: [{ name: 'to-nats', nats: { servers: ['nats://ann:secret@n1:4222'], stream: 's' } }],
    },
  });
  const written: unknown[] = [];
  const said: string[] = [];
  for (const given of [undefined, config]) {
    await command.run(given, (line) => said.push(line));
    const { channels, servers } = JSON.parse(await readFile(file, 'utf8'));
    written.push([channels.Ticket.address, servers]);
  }
  expect(written).toEqual([
    ['com.example.help-desk.Ticket', undefined],
    ['com.example.other.Ticket.{eventType}', { 'to-nats': { host: 'n1:4222', protocol: 'nats' } }],
  ]);
  expect(said).toEqual(said.map(() => `${file}: the events of Ticket`));
  await rm(folder, { recursive: true });
});

const oneShard = {
  'default-shard': { group: 0, member: 0 },
  groups: [
    {
      group: 0,
      name: 'global',
      members: [
        {
          member: 0,
          name: 'global-1',
          configs: { 'primary-config': { 'jdbc-url': 'postgres://127.0.0.1/global' } },
        },
      ],
    },
  ],
};

test('an audit log is checked, and what was changed in it is named', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'audit-command-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = join(folder, 'audit.jsonl');
  const log = await AuditLog.open(auditSchema.parse({ file, hashChain: true }), () => undefined);
  for (const amount of ['1', '2'])
    await log.write({
      time: new Date(),
      requestId: 'r',
      principal: 'alice',
      address: '127.0.0.1',
      request: 'POST /wallets/w/deposit',
      idempotencyKey: null,
      input: { amount },
      status: 200,
      code: null,
      replayed: false,
    });
  await log.close();
  const check = async (...words: readonly string[]): Promise<readonly string[]> => {
    const said: string[] = [];
    const command = operatorCommand(['audit', file, ...words]);
    if (typeof command === 'object') await command.run(undefined, (line) => said.push(line));
    return said;
  };
  const { sequence, hash } = log.end;
  expect(await check()).toEqual([`${file}: nothing was changed; it ends with ${sequence}:${hash}`]);
  await expect(check(`7:${hash}`)).rejects.toThrow('line 1 does not follow the line before it');
  await writeFile(file, (await readFile(file, 'utf8')).replace('"amount":"2"', '"amount":"3"'));
  await expect(check()).rejects.toThrow(`${file}: line 2 was changed`);
});
