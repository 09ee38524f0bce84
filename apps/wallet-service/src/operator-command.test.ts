import { parseFrameworkConfig } from '@framework/core';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';

import { operatorCommand } from './operator-command.js';

test('a service without arguments runs no command', () => {
  expect(operatorCommand([])).toBeUndefined();
});

test.each([['migrate'], ['asyncapi events.json'], ['adopt 0/0'], ['adopt 0/1 255/63'], ['release 1/0']])(
  'the command %s is accepted',
  (words) => {
    expect(operatorCommand(words.split(' '))).toHaveProperty('run');
  },
);

test.each([
  ['adpot'],
  ['adopt'],
  ['adopt 0'],
  ['adopt 256/0'],
  ['adopt 0/64'],
  ['release'],
  ['release 1/0 mexico'],
  ['migrate all'],
  ['asyncapi'],
  ['asyncapi events.json more.json'],
])('the command %s is answered with the usage', (words) => {
  expect(operatorCommand(words.split(' '))).toMatch(/adopt 0\/1.*release 1\/0/s);
});

test('a command for databases needs a configuration', async () => {
  const command = operatorCommand(['migrate']);
  const run = typeof command === 'object' ? command.run(undefined, () => undefined) : undefined;
  await expect(run).rejects.toThrow('WALLET_CONFIG is missing');
});

test('the document of the events is written to a file, with the namespace of the configuration if there is one', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'asyncapi-'));
  const file = join(folder, 'events.json');
  const command = operatorCommand(['asyncapi', file]);
  if (typeof command !== 'object') throw new Error('the command is not accepted');
  const config = parseFrameworkConfig({
    framework: { namespace: 'com.example.other', sharding: oneShard },
  });
  const addresses: string[] = [];
  const said: string[] = [];
  for (const given of [undefined, config]) {
    await command.run(given, (line) => said.push(line));
    const { channels } = JSON.parse(await readFile(file, 'utf8'));
    addresses.push(channels.Wallet.address);
  }
  expect(addresses).toEqual(['com.example.wallet.Wallet', 'com.example.other.Wallet']);
  expect(said).toEqual(said.map(() => `${file}: the events of Wallet, Transfer, TransferDecision`));
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
