import { fileURLToPath } from 'node:url';
import { type FrameworkConfig, ShardIdentifier } from '@framework/core';
import { type OperatorCommands, adoptShards, migrateShards } from '@framework/drizzle-adapter';

/** The service's own migrations. This file stands as deep in `src` as the bundle does in `dist`. */
export const migrationsFolder: string = fileURLToPath(new URL('../migrations', import.meta.url));

/** What operators type, for messages about databases that cannot serve. */
export const operatorCommands: Required<OperatorCommands> = {
  migrate: '`npm run migrate`',
  adopt: (shards) =>
    `\`npm run adopt -- ${shards.map(({ group, member }) => `${group}/${member}`).join(' ')}\``,
};

const usage = [
  'Without a word the service starts. Commands for operators, with WALLET_CONFIG:',
  '  migrate              applies the migrations that are missing, to all databases',
  '  adopt 0/1 [1/0 …]    lets the databases that are configured for these shards (group/member) hold them',
].join('\n');

/** What a process does instead of serving. */
export interface OperatorCommand {
  /** @throws Error which database fails, and why */
  run(config: FrameworkConfig, say: (line: string) => void): Promise<void>;
}

/**
 * Reads the words after the program's name.
 *
 * @returns `undefined` when there are none; a text that says what to write when they are no command
 */
export function operatorCommand(words: readonly string[]): OperatorCommand | string | undefined {
  const [name, ...rest] = words;
  if (name === undefined) return undefined;
  if (name === 'migrate' && rest.length === 0) return { run: migrate };
  const shards = rest.map(shardOf);
  if (name !== 'adopt' || shards.length === 0 || shards.includes(undefined)) return usage;
  return {
    run: (config, say) =>
      adopt(
        config,
        shards.filter((shard) => shard !== undefined),
        say,
      ),
  };
}

function shardOf(word: string): ShardIdentifier | undefined {
  const [, group, member] = /^(\d{1,3})\/(\d{1,2})$/.exec(word) ?? [];
  if (Number(group) <= 255 && Number(member) <= 63) return ShardIdentifier.of(Number(group), Number(member));
  return undefined;
}

async function migrate({ sharding }: FrameworkConfig, say: (line: string) => void): Promise<void> {
  for (const { database, applied } of await migrateShards(sharding, migrationsFolder, operatorCommands))
    say(`${database}: ${applied.length === 0 ? 'nothing to apply' : `applied ${applied.join(', ')}`}`);
}

async function adopt(
  { sharding }: FrameworkConfig,
  shards: readonly ShardIdentifier[],
  say: (line: string) => void,
): Promise<void> {
  for (const { database, adopted, released, sessionsLeft } of await adoptShards(sharding, shards)) {
    if (adopted.length > 0) say(`${database}: holds ${adopted.join(', ')} from now on`);
    if (released.length > 0) say(`${database}: does not hold ${released.join(', ')} any more`);
    for (const session of sessionsLeft)
      say(`${database}: END THIS SESSION, which may still write to what was released: ${session}`);
  }
}
