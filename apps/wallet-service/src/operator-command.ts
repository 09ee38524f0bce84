import { type FrameworkConfig, ShardIdentifier } from '@framework/core';
import {
  type OperatorCommands,
  type RoleOptions,
  type ShardRelease,
  adoptShards,
  grantRoles,
  migrateShards,
  releaseShards,
  roleStatements,
} from '@framework/drizzle-adapter';
import { type ChainEnd, checkChain } from '@framework/http/security';
import { describeRelays } from '@framework/relay/config';
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import { embeddedNamespace } from './process/embedded-databases.js';
import { publishedEvents } from './published-events.js';
import { securitySettings } from './security/security-settings.js';

/** The service's own migrations. This file is at the same depth in `src` as the bundle is in `dist`. */
export const migrationsFolder: string = fileURLToPath(new URL('../migrations', import.meta.url));

/** The commands for operators, for messages about databases that are not ready. */
export const operatorCommands: Required<OperatorCommands> = {
  migrate: '`npm run migrate`',
  adopt: (shards) =>
    `\`npm run adopt -- ${shards.map(({ group, member }) => `${group}/${member}`).join(' ')}\``,
};

/**
 * The roles of the service's databases, and what its processes do with its tables. Decisions and notifications are never changed, and
 * nobody reads notifications here.
 */
export const databaseRoles: Required<RoleOptions> = {
  prefix: 'wallet',
  tables: {
    wallets: ['select', 'insert', 'update'],
    transfers: ['select', 'insert', 'update'],
    transfer_decisions: ['select', 'insert'],
    notifications: ['insert'],
  },
};

const usage = [
  'Without arguments, the service starts. Commands for operators, with WALLET_CONFIG:',
  '  migrate              applies missing migrations to the database of every primary-config',
  '  adopt 0/1 [1/0 …]    makes the databases that are configured for these shards (group/member) hold them',
  '  release 1/0 […]      makes the databases that are configured for these shards give them up before a move',
  '  roles print|apply    prints or executes the statements that give database roles their privileges',
  '  audit FILE [END]     checks the hash chain of an audit log, which begins after END (SEQUENCE:HASH) if it continues another',
  '  asyncapi FILE        writes the AsyncAPI document of what relays publish; works without WALLET_CONFIG, too',
].join('\n');

type Say = (line: string) => void;

/** What a process does instead of serving. */
export interface OperatorCommand {
  /**
   * Runs the command, and reports each result with `say`.
   *
   * @throws Error that says what is missing, or which database failed, and why
   */
  run(config: FrameworkConfig | undefined, say: Say): Promise<void>;
}

/** The commands that are given shards, by name. */
const shardCommands: ReadonlyMap<
  string | undefined,
  (config: FrameworkConfig, shards: readonly ShardIdentifier[], say: Say) => Promise<void>
> = new Map([
  ['adopt', adopt],
  ['release', release],
]);

const roleCommands: ReadonlyMap<string, (config: FrameworkConfig, say: Say) => Promise<void>> = new Map([
  ['print', printRoles],
  ['apply', applyRoles],
]);

/**
 * Parses the arguments after the program's name.
 *
 * @returns `undefined` when there are none; the usage when they are not a valid command
 */
export function operatorCommand(words: readonly string[]): OperatorCommand | string | undefined {
  const [name, ...rest] = words;
  if (name === undefined) return undefined;
  if (name === 'migrate' && rest.length === 0) return onDatabases(migrate);
  const roles = rest.length === 1 ? roleCommands.get(rest.join()) : undefined;
  if (name === 'roles' && roles !== undefined) return onDatabases(roles);
  const [file] = rest;
  if (name === 'asyncapi' && file !== undefined && rest.length === 1)
    return { run: (config, say) => writeAsyncapi(file, config, say) };
  if (name === 'audit' && file !== undefined) return auditCommand(file, rest.slice(1));
  const change = shardCommands.get(name);
  const shards = rest.map(shardOf).filter((shard) => shard !== undefined);
  if (change === undefined || shards.length === 0 || shards.length < rest.length) return usage;
  return onDatabases((config, say) => change(config, shards, say));
}

/** A command that works on the databases of the configuration. */
function onDatabases(work: (config: FrameworkConfig, say: Say) => Promise<void>): OperatorCommand {
  return {
    run: async (config, say) => {
      if (config === undefined)
        throw new Error('WALLET_CONFIG is missing: set it to the file that configures the databases');
      await work(config, say);
    },
  };
}

function shardOf(word: string): ShardIdentifier | undefined {
  const [, group, member] = /^(\d{1,3})\/(\d{1,2})$/.exec(word) ?? [];
  if (Number(group) <= 255 && Number(member) <= 63) return ShardIdentifier.of(Number(group), Number(member));
  return undefined;
}

async function migrate({ sharding }: FrameworkConfig, say: Say): Promise<void> {
  for (const { database, applied } of await migrateShards(sharding, migrationsFolder, operatorCommands))
    say(`${database}: ${applied.length === 0 ? 'nothing to apply' : `applied ${applied.join(', ')}`}`);
}

/** Prints a script for `psql`, whose comments say in which database each part belongs. */
async function printRoles({ sharding }: FrameworkConfig, say: Say): Promise<void> {
  for (const { database, statements } of await roleStatements(sharding, databaseRoles)) {
    say(`-- ${database}${statements.length === 0 ? ': nothing is missing' : ''}`);
    for (const statement of statements) say(`${statement};`);
  }
}

async function applyRoles({ sharding }: FrameworkConfig, say: Say): Promise<void> {
  for (const { database, statements } of await grantRoles(sharding, databaseRoles))
    say(
      `${database}: ${statements.length === 0 ? 'nothing was missing' : `executed ${statements.join('; ')}`}`,
    );
}

async function writeAsyncapi(file: string, config: FrameworkConfig | undefined, say: Say): Promise<void> {
  const document =
    config === undefined
      ? publishedEvents(embeddedNamespace)
      : publishedEvents(config.namespace, describeRelays(config));
  await writeFile(file, `${JSON.stringify(document, undefined, 2)}\n`);
  say(`${file}: the events of ${Object.keys(document.channels).join(', ')}`);
}

/** @returns the usage when the words after the file are not the end of a chain */
function auditCommand(file: string, words: readonly string[]): OperatorCommand | string {
  const [, sequence, hash = ''] = /^(\d{1,15}):([\da-f]{64})$/.exec(words.join(' ')) ?? [];
  if (words.length > 0 && sequence === undefined) return usage;
  const before = sequence === undefined ? undefined : { sequence: Number(sequence), hash };
  return { run: (config, say) => checkAudit(file, before, config, say) };
}

/** @throws Error with everything that is wrong with the file */
async function checkAudit(
  file: string,
  before: ChainEnd | undefined,
  config: FrameworkConfig | undefined,
  say: Say,
): Promise<void> {
  const keyFile = config && securitySettings(config).audit?.hashKeyFile;
  const { end, faults } = await checkChain(file, { keyFile, before });
  if (faults.length > 0) throw new Error(faults.map((fault) => `${file}: ${fault}`).join('\n'));
  say(`${file}: nothing was changed; it ends with ${end.sequence}:${end.hash}`);
}

async function adopt(
  { sharding }: FrameworkConfig,
  shards: readonly ShardIdentifier[],
  say: Say,
): Promise<void> {
  for (const { adopted, ...released } of await adoptShards(sharding, shards)) {
    if (adopted.length > 0) say(`${released.database}: holds ${adopted.join(', ')} from now on`);
    sayReleased(released, say);
  }
}

async function release(
  { sharding }: FrameworkConfig,
  shards: readonly ShardIdentifier[],
  say: Say,
): Promise<void> {
  for (const each of await releaseShards(sharding, shards)) sayReleased(each, say);
}

function sayReleased({ database, released, sessionsLeft }: ShardRelease, say: Say): void {
  if (released.length > 0) say(`${database}: does not hold ${released.join(', ')} any more`);
  for (const session of sessionsLeft)
    say(`${database}: END THIS SESSION, which may still write to what was released: ${session}`);
}
