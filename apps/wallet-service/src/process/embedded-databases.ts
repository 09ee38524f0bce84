import { ConfigurationError, type FrameworkConfig, parseFrameworkConfig } from '@framework/core';
import type { EmbeddedPostgres } from '@framework/embedded-postgres';
import { writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { withEnvironment } from './environment-config.js';

/** The databases of the two example shards, on a server that runs only as long as this process. */
export interface EmbeddedDatabases {
  readonly config: FrameworkConfig;
  /** The same, without what variables add, for the command line. Only the user of this process can read it: passwords are in it. */
  readonly configFile: string;
  readonly stop: () => Promise<void>;
}

/** The namespace of a service that has no configuration. */
export const embeddedNamespace = 'com.example.wallet';

/** What the command line asks about the application, when the service runs from its bundle. */
const operatorModule = fileURLToPath(new URL('operator-module.js', import.meta.url));
const maximumPoolSize = 20;
/** How long to wait before trying again to start a server that has ended, in milliseconds. */
const restartDelayMs = 1_000;

/**
 * Starts PostgreSQL from an npm package, with its data in a folder, and creates both databases unless they exist. A
 * server that ends without being stopped is restarted on the same port.
 *
 * @param progress receives a line for each slow step, and when the server has ended
 * @param environment whose `FRAMEWORK_…` variables add sections such as `http` to the configuration
 * @throws ConfigurationError `invalid-configuration` when a variable has a mistake
 * @throws PostgresServerError when the server does not start, or another process uses the folder
 */
export async function startEmbeddedDatabases(
  directory: string,
  progress: (line: string) => void,
  environment: NodeJS.ProcessEnv = {},
): Promise<EmbeddedDatabases> {
  refuseSharding(environment);
  // Fails before the server is started.
  withEnvironment({}, environment);
  // Imported here because a service with its own databases does not need it.
  const { EmbeddedPostgres } = await import('@framework/embedded-postgres');
  progress(`Starting PostgreSQL, data in ${relative(process.cwd(), directory) || directory}`);
  const server = await EmbeddedPostgres.start({ directory, onProgress: progress });
  await server.ensureDatabase('global');
  await server.ensureDatabase('mexico');
  const group = (number: number, name: string, database: string) => ({
    group: number,
    name,
    members: [
      { member: 0, name: `${name}-1`, configs: { 'primary-config': primaryConfig(server.url(database)) } },
    ],
  });
  const tree = {
    framework: {
      namespace: embeddedNamespace,
      sharding: {
        'default-shard': { group: 0, member: 0 },
        groups: [group(0, 'global', 'global'), group(1, 'mexico', 'mexico')],
      },
    },
  };
  const config = parseFrameworkConfig(withEnvironment(tree, environment));
  const configFile = join(directory, 'wallet.json');
  const forOperators = { framework: { ...tree.framework, operator: { module: operatorModule } } };
  await writeFile(configFile, JSON.stringify(forOperators, undefined, 2), { mode: 0o600 });
  const stop = keepRunning(server, progress, (port) => EmbeddedPostgres.start({ directory, port }));
  return { config, configFile, stop };
}

/** Otherwise, variables for other databases would be mixed with the address of the embedded ones. */
function refuseSharding(environment: NodeJS.ProcessEnv): void {
  const faults = Object.keys(environment)
    .filter((name) => name.startsWith('FRAMEWORK_SHARDING_') && environment[name] !== '')
    .map((path) => ({ path, message: 'is for databases of your own: set WALLET_CONFIG as well' }));
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
