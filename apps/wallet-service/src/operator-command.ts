import { type FrameworkConfig, ShardIdentifier } from '@framework/core';
import {
  type OperatorCommands,
  type ShardRelease,
  adoptShards,
  migrateShards,
  releaseShards,
} from '@framework/drizzle-adapter';
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import { embeddedNamespace } from './process/embedded-databases.js';
import { publishedEvents } from './published-events.js';

/** The service's own migrations. This file is at the same depth in `src` as the bundle is in `dist`. */
export const migrationsFolder: string = fileURLToPath(new URL('../migrations', import.meta.url));

/** The commands for operators, for messages about databases that are not ready. */
export const operatorCommands: Required<OperatorCommands> = {
  migrate: '`npm run migrate`',
  adopt: (shards) =>
    `\`npm run adopt -- ${shards.map(({ group, member }) => `${group}/${member}`).join(' ')}\``,
};

const usage = [
  'Without arguments, the service starts. Commands for operators, with WALLET_CONFIG:',
  '  migrate              applies missing migrations to the database of every primary-config',
  '  adopt 0/1 [1/0 …]    makes the databases that are configured for these shards (group/member) hold them',
  '  release 1/0 […]      makes the databases that are configured for these shards give them up before a move',
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

/**
 * Parses the arguments after the program's name.
 *
 * @returns `undefined` when there are none; the usage when they are not a valid command
 */
export function operatorCommand(words: readonly string[]): OperatorCommand | string | undefined {
  const [name, ...rest] = words;
  if (name === undefined) return undefined;
  if (name === 'migrate' && rest.length === 0) return onDatabases(migrate);
  const [file] = rest;
  if (name === 'asyncapi' && file !== undefined && rest.length === 1)
    return { run: (config, say) => writeAsyncapi(file, config, say) };
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

async function writeAsyncapi(file: string, config: FrameworkConfig | undefined, say: Say): Promise<void> {
  const document = publishedEvents(config?.namespace ?? embeddedNamespace);
  await writeFile(file, `${JSON.stringify(document, undefined, 2)}\n`);
  say(`${file}: the events of ${Object.keys(document.channels).join(', ')}`);
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
