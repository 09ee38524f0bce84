import { ConfigurationError, type FrameworkConfig } from '@framework/core';
import {
  type ConfigurationIssue,
  type EventSource,
  type Observer,
  kebabCasePath,
  unknownKeysBesidePassword,
} from '@framework/core/adapter';
import * as z from 'zod';

import type { Relay } from './event-relay.js';
import { type RelayOptions, relay } from './relay.js';
import { defined } from './relay-credentials.js';
import { kindNames, kinds, type onlySchema, relaySchema } from './relay-sections.js';

export { type RelayDescription, describeRelays } from './relay-description.js';

/** What {@link openRelays} reads, as a schema with its keys in camelCase, for programs that take values from elsewhere than a file. */
export const relayKeys: z.ZodType = z.array(relaySchema);

/** The sources of events that a configuration file may name, by their names there; each call creates one. */
export type RelaySources = Readonly<Record<string, () => EventSource | Promise<EventSource>>>;

/**
 * Creates the relays of a configuration file, the section `framework.relay`. They connect when delivery first publishes.
 *
 * @param options.sources the values of `source`, such as `'logical-replication'`; every relay can do without. Default: none
 * @param options.observer traces and measures the calls of their brokers. Default: nobody does
 * @throws ConfigurationError `invalid-configuration` with the path of every fault; values, which may contain passwords, are never
 * shown
 */
export async function openRelays(
  {
    namespace,
    sharding,
    relay: sections,
  }: Pick<FrameworkConfig, 'namespace' | 'relay'> & Partial<Pick<FrameworkConfig, 'sharding'>>,
  { sources = {}, observer }: { readonly sources?: RelaySources; readonly observer?: Observer } = {},
): Promise<readonly Relay[]> {
  const faults: ConfigurationIssue[] = [];
  const relays: Relay[] = [];
  const names = new Set<string>();
  const shards = sharding?.members.map(({ shard: { group, member } }) => `${group}/${member}`);
  for (const [index, section] of sections.entries()) {
    const path = ['framework', 'relay', index];
    const { data, error } = relaySchema.safeParse(section, { reportInput: true });
    if (error !== undefined) {
      faults.push(...error.issues.flatMap((issue) => faultsOf(path, issue)));
      continue;
    }
    const { name, aliases = [], startFrom, timeoutMs, only, source: sourceName } = data;
    const createSource = Object.entries(sources).find(([each]) => each === sourceName)?.[1];
    if (sourceName !== undefined && createSource === undefined) {
      const known = Object.keys(sources).join(', ');
      const message =
        known === '' ? 'names a source, but this program has none' : `must be left out, or one of: ${known}`;
      faults.push({ path: kebabCasePath([...path, 'source']), message });
      continue;
    }
    for (const [position, shard] of (only?.shards ?? []).entries())
      if (shards?.includes(shard) === false)
        faults.push({
          path: kebabCasePath([...path, 'only', 'shards', position]),
          message: `is none of the shards ${shards.join(', ')}`,
        });
    const filter = only && filterOf(only);
    const [broker, ...others] = kindNames.filter((each) => data[each] !== undefined);
    if (broker === undefined || others.length > 0) {
      const message = `must have exactly one of the sections ${kindNames.join(', ')}`;
      faults.push({ path: kebabCasePath(path), message });
      continue;
    }
    for (const [key, given] of [
      ['name', name],
      ...aliases.map((alias) => ['aliases', alias] as const),
    ] as const) {
      if (names.has(given))
        faults.push({ path: kebabCasePath([...path, key]), message: 'occurs twice: name each relay' });
      names.add(given);
    }
    let opening: string = broker;
    try {
      const opened = await kinds[broker].open(data[broker], namespace);
      opening = 'source';
      const source = await createSource?.();
      relays.push(
        relay({
          name,
          broker: opened,
          aliases,
          ...defined({ startFrom, timeoutMs, source, observer, filter }),
        }),
      );
    } catch (cause) {
      const clients = opening === broker ? kinds[broker].clients : [missingPackage(cause)];
      faults.push({ path: kebabCasePath([...path, opening]), message: openingFault(clients, cause) });
    }
  }
  if (faults.length > 0) throw new ConfigurationError(faults);
  return relays;
}

function filterOf({ models, events, shards }: z.output<typeof onlySchema>): RelayOptions['filter'] {
  return ({ modelName, eventType, shard: { group, member } }) =>
    (models?.includes(modelName) ?? true) &&
    (events?.includes(eventType) ?? true) &&
    (shards?.includes(`${group}/${member}`) ?? true);
}

function openingFault(clients: readonly string[], cause: unknown): string {
  const { code, message } = cause as NodeJS.ErrnoException;
  if (code === 'ERR_MODULE_NOT_FOUND')
    return `needs a client that is not installed: npm install ${clients.join(' ')}`;
  return `is refused: ${message}`;
}

/** The package that Node has not found, which its error names first. */
function missingPackage(cause: unknown): string {
  return /'([^']+)'/.exec((cause as Error).message)?.[1] ?? '';
}

function faultsOf(relayPath: readonly PropertyKey[], issue: z.core.$ZodIssue): readonly ConfigurationIssue[] {
  const path = [...relayPath, ...issue.path];
  if (issue.code === 'unrecognized_keys') {
    return unknownKeysBesidePassword(path, issue.keys, keysAt(issue.path));
  }
  const message = issue.input === undefined ? 'is missing' : issue.message;
  return [{ path: kebabCasePath(path), message }];
}

/** The keys that a section of a relay may have. */
function keysAt(path: readonly PropertyKey[]): readonly string[] {
  let section: z.core.$ZodType | undefined = relaySchema;
  for (const key of path)
    section = section instanceof z.ZodObject ? withoutWrapping(section.shape[String(key)]) : undefined;
  return section instanceof z.ZodObject ? Object.keys(section.shape) : [];
}

function withoutWrapping(schema: z.core.$ZodType): z.core.$ZodType {
  if (schema instanceof z.ZodOptional) return withoutWrapping(schema.unwrap());
  return schema instanceof z.ZodPipe ? withoutWrapping(schema.out) : schema;
}
