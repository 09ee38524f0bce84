import { ConfigurationError, type FrameworkConfig, parseFrameworkConfig } from '@framework/core';
import type { EmbeddedPostgres } from '@framework/embedded-postgres';
import { writeFile } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

import type { ServiceDescription } from '../service-definition.js';
import { namesOf } from '../service-names.js';
import { withVariables } from '../settings/service-config.js';

/** The databases of an application's shards, on a server that runs only as long as this process. */
export interface EmbeddedDatabases {
  readonly config: FrameworkConfig;
  /** The same, without what variables add, for the command line. Only the user of this process can read it: passwords are in it. */
  readonly configFile: string;
  readonly stop: () => Promise<void>;
}

const maximumPoolSize = 20;
/** How long to wait before trying again to start a server that has ended, in milliseconds. */
const restartDelayMs = 1_000;

/**
 * Starts PostgreSQL from an npm package, with its data in a folder, and creates the databases of an application's shards unless they
 * exist. A server that ends without being stopped is restarted on the same port.
 *
 * @param options.folder overrides the folder in the definition
 * @param options.progress receives a line for each slow step, and when the server has ended
 * @param options.environment whose `FRAMEWORK_…` variables add sections such as `http` to the configuration
 * @throws ConfigurationError `invalid-configuration` when a variable has a mistake, or the package is not installed
 * @throws PostgresServerError when the server does not start, or another process uses the folder
 */
export async function startEmbeddedDatabases(
  definition: ServiceDescription,
  { folder, progress, environment = {} }: EmbeddedOptions,
): Promise<EmbeddedDatabases> {
  const { namespace, variables } = namesOf(definition);
  const { embedded = {}, name } = definition;
  refuseSharding(environment, variables);
  // Fails before the server is started.
  withVariables(definition, {}, environment);
  const directory = folder ?? embedded.folder ?? resolve('.data/postgres');
  const { EmbeddedPostgres } = await importEmbedded(variables);
  progress(`Starting PostgreSQL, data in ${relative(process.cwd(), directory) || directory}`);
  const server = await EmbeddedPostgres.start({ directory, onProgress: progress });
  const groups = embedded.groups ?? [name];
  for (const group of groups) await server.ensureDatabase(group);
  const tree = {
    framework: {
      namespace,
      sharding: {
        'default-shard': { group: 0, member: 0 },
        groups: groups.map((group, index) => ({
          group: index,
          name: group,
          members: [
            {
              member: 0,
              name: `${group}-1`,
              configs: { 'primary-config': primaryConfig(server.url(group)) },
            },
          ],
        })),
      },
    },
  };
  const config = parseFrameworkConfig(withVariables(definition, tree, environment));
  const configFile = join(directory, `${name}.json`);
  const module = embedded.operatorModule;
  const forOperators = { ...tree.framework, ...(module !== undefined && { operator: { module } }) };
  await writeFile(configFile, JSON.stringify({ framework: forOperators }, undefined, 2), { mode: 0o600 });
  const stop = keepRunning(server, progress, (port) => EmbeddedPostgres.start({ directory, port }));
  return { config, configFile, stop };
}

interface EmbeddedOptions {
  readonly folder?: string | undefined;
  readonly progress: (line: string) => void;
  readonly environment?: NodeJS.ProcessEnv;
}

/** Imported here because a service with its own databases does not need it. */
async function importEmbedded(variables: string) {
  try {
    return await import('@framework/embedded-postgres');
  } catch (cause) {
    const message =
      'is not set, and there are no embedded databases either: name the file that configures the databases, or run ' +
      'npm install @framework/embedded-postgres to try the service without';
    throw new ConfigurationError([{ path: `${variables}_CONFIG`, message }], { cause });
  }
}

/** Otherwise, variables for other databases would be mixed with the address of the embedded ones. */
function refuseSharding(environment: NodeJS.ProcessEnv, variables: string): void {
  const faults = Object.keys(environment)
    .filter((name) => name.startsWith('FRAMEWORK_SHARDING_') && environment[name] !== '')
    .map((path) => ({ path, message: `is for databases of your own: set ${variables}_CONFIG as well` }));
  if (faults.length > 0) throw new ConfigurationError(faults);
}

/** Restarts a server whenever it ends by itself. Returns a function that stops the server for good. */
function keepRunning(
  first: EmbeddedPostgres,
  progress: (line: string) => void,
  startOn: (port: number) => Promise<EmbeddedPostgres>,
): () => Promise<void> {
  const { port } = first;
  const stopping = new AbortController();
  const { signal } = stopping;
  let server = first;
  const run = async (): Promise<void> => {
    for (;;) {
      await server.exited;
      if (signal.aborted) return;
      progress(
        `The embedded PostgreSQL server has ended and is being restarted; its log is ${server.logFile}`,
      );
      server = (await startAgain()) ?? server;
      if (signal.aborted) return server.stop();
      progress('The embedded PostgreSQL server is running again');
    }
  };
  const startAgain = async (): Promise<EmbeddedPostgres | undefined> => {
    for (let said = ''; !signal.aborted;) {
      try {
        return await startOn(port);
      } catch (error) {
        const line = `The embedded PostgreSQL server does not start yet; trying again: ${String(error)}`;
        if (line !== said) progress(line);
        said = line;
        await delay(restartDelayMs, undefined, { signal }).catch(() => undefined);
      }
    }
    return undefined;
  };
  const running = run();
  return async () => {
    stopping.abort();
    await server.stop();
    // A server that is being started meanwhile is stopped as well.
    await running;
  };
}

function primaryConfig(url: string): Readonly<Record<string, string | number>> {
  return { 'jdbc-url': url, 'maximum-pool-size': maximumPoolSize };
}
