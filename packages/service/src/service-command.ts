import { type FrameworkConfig, ShardIdentifier } from '@framework/core';
import { type OperatorCommands, migrateShards } from '@framework/drizzle-adapter';
import { type ChainEnd, checkChain } from '@framework/http/security';
import {
  type RoleOptions,
  type ShardRelease,
  adoptShards,
  grantRoles,
  releaseShards,
  roleStatements,
} from '@framework/postgres-admin';
import type { AsyncApiDocument } from '@framework/relay/asyncapi';
import { writeFile } from 'node:fs/promises';

import { publishedEvents } from './published-events.js';
import type { ServiceDescription } from './service-definition.js';
import { namesOf } from './service-names.js';
import { parseSections } from './settings/service-config.js';

/** The commands for operators, for messages about databases that are not ready. */
export function commandsOf({ commands }: Pick<ServiceDescription, 'commands'>): Required<OperatorCommands> {
  const { doctor: _doctor, ...given } = commands ?? {};
  return {
    migrate: 'this program with the argument `migrate`',
    adopt: (shards) =>
      `this program with the arguments \`adopt ${shards.map(({ group, member }) => `${group}/${member}`).join(' ')}\``,
    ...given,
  };
}

function usageOf(definition: ServiceDescription): string {
  const { variables } = namesOf(definition);
  return [
    `Without arguments, the service starts. Commands for operators, with ${variables}_CONFIG:`,
    '  migrate              applies missing migrations to the database of every primary-config',
    '  adopt 0/1 [1/0 …]    makes the databases that are configured for these shards (group/member) hold them',
    '  release 1/0 […]      makes the databases that are configured for these shards give them up before a move',
    '  roles print|apply    prints or executes the statements that give database roles their privileges',
    '  audit FILE [END]     checks the hash chain of an audit log, which begins after END (SEQUENCE:HASH) if it continues another',
    ...(definition.events
      ? [
          `  asyncapi FILE        writes the AsyncAPI document of what relays publish; works without ${variables}_CONFIG, too`,
        ]
      : []),
    ...(definition.demo ? ['  demo                 starts a demonstration, on databases of its own'] : []),
  ].join('\n');
}

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

const roleCommands: ReadonlyMap<
  string,
  (roles: RoleOptions, config: FrameworkConfig, say: Say) => Promise<void>
> = new Map([
  ['print', printRoles],
  ['apply', applyRoles],
]);

/**
 * Parses the arguments after the program's name.
 *
 * @returns `undefined` when there are none; the usage when they are not a valid command
 */
export function serviceCommand(
  definition: ServiceDescription,
  words: readonly string[],
): OperatorCommand | string | undefined {
  const [name, ...rest] = words;
  if (name === undefined) return undefined;
  return commandOf(definition, name, rest) ?? usageOf(definition);
}

function commandOf(
  definition: ServiceDescription,
  name: string,
  rest: readonly string[],
): OperatorCommand | undefined {
  const { events } = definition;
  /** A command that works on the databases of the configuration. */
  const onDatabases = (work: (config: FrameworkConfig, say: Say) => Promise<void>): OperatorCommand => ({
    run: async (config, say) => {
      if (config === undefined) {
        const { variables } = namesOf(definition);
        throw new Error(`${variables}_CONFIG is missing: set it to the file that configures the databases`);
      }
      await work(config, say);
    },
  });
  const [first = ''] = rest;
  const shards = rest.map(shardOf).filter((shard) => shard !== undefined);
  const hasShards = shards.length > 0 && shards.length === rest.length;
  switch (name) {
    case 'migrate':
      return rest.length === 0 ? onDatabases((config, say) => migrate(definition, config, say)) : undefined;
    case 'adopt':
      return hasShards ? onDatabases((config, say) => adopt(config, shards, say)) : undefined;
    case 'release':
      return hasShards ? onDatabases((config, say) => release(config, shards, say)) : undefined;
    case 'roles': {
      if (rest.length !== 1) return undefined;
      const change = roleCommands.get(first);
      return change && onDatabases((config, say) => change(rolesOf(definition), config, say));
    }
    case 'asyncapi':
      if (events === undefined || rest.length !== 1) return undefined;
      return { run: (config, say) => writeAsyncapi(first, publishedEvents(definition, events, config), say) };
    case 'audit':
      return rest.length > 0 ? auditCommand(definition, first, rest.slice(1)) : undefined;
    default:
      return undefined;
  }
}

/** The roles of an application's databases. */
export function rolesOf(
  definition: Pick<ServiceDescription, 'name' | 'tables'>,
): RoleOptions & { readonly prefix: string } {
  const { tables } = definition;
  return { prefix: namesOf(definition).roles, ...(tables && { tables }) };
}

function shardOf(word: string): ShardIdentifier | undefined {
  const [, group, member] = /^(\d{1,3})\/(\d{1,2})$/.exec(word) ?? [];
  if (Number(group) <= 255 && Number(member) <= 63) return ShardIdentifier.of(Number(group), Number(member));
  return undefined;
}

async function migrate(
  definition: ServiceDescription,
  { sharding }: FrameworkConfig,
  say: Say,
): Promise<void> {
  const { migrationsFolder } = definition;
  for (const { database, applied } of await migrateShards(sharding, migrationsFolder, commandsOf(definition)))
    say(`${database}: ${applied.length === 0 ? 'nothing to apply' : `applied ${applied.join(', ')}`}`);
}

/** Prints a script for `psql`, whose comments say in which database each part belongs. */
async function printRoles(roles: RoleOptions, { sharding }: FrameworkConfig, say: Say): Promise<void> {
  for (const { database, statements } of await roleStatements(sharding, roles)) {
    say(`-- ${database}${statements.length === 0 ? ': nothing is missing' : ''}`);
    for (const statement of statements) say(`${statement};`);
  }
}

async function applyRoles(roles: RoleOptions, { sharding }: FrameworkConfig, say: Say): Promise<void> {
  for (const { database, statements } of await grantRoles(sharding, roles))
    say(
      `${database}: ${statements.length === 0 ? 'nothing was missing' : `executed ${statements.join('; ')}`}`,
    );
}

async function writeAsyncapi(file: string, document: AsyncApiDocument, say: Say): Promise<void> {
  await writeFile(file, `${JSON.stringify(document, undefined, 2)}\n`);
  say(`${file}: the events of ${Object.keys(document.channels).join(', ')}`);
}

/** @returns `undefined` when the words after the file are not the end of a chain */
function auditCommand(
  definition: ServiceDescription,
  file: string,
  words: readonly string[],
): OperatorCommand | undefined {
  const [, sequence, hash = ''] = /^(\d{1,15}):([\da-f]{64})$/.exec(words.join(' ')) ?? [];
  if (words.length > 0 && sequence === undefined) return undefined;
  const before = sequence === undefined ? undefined : { sequence: Number(sequence), hash };
  return {
    run: (config, say) => {
      const keyFile = config && parseSections(definition, config).security.audit?.hashKeyFile;
      return checkAudit(file, { keyFile, before }, say);
    },
  };
}

/** @throws Error with everything that is wrong with the file */
async function checkAudit(
  file: string,
  chain: { readonly keyFile: string | undefined; readonly before: ChainEnd | undefined },
  say: Say,
): Promise<void> {
  const { end, faults } = await checkChain(file, chain);
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
