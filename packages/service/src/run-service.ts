import type { FrameworkConfig } from '@framework/core';
import { errorStack } from '@framework/http';
import { randomBytes } from 'node:crypto';
import { relative, resolve } from 'node:path';
import type { Logger } from 'pino';

import { logOptions } from './log/log-format.js';
import { logMessages } from './log/log-messages.js';
import { logTaken, serviceLogger } from './log/service-logger.js';
import { type OperatorCommand, serviceCommand } from './service-command.js';
import type {
  Application,
  Demonstration,
  ReadyService,
  ServiceDefinition,
  ServiceDescription,
} from './service-definition.js';
import { namesOf } from './service-names.js';
import { readConfigFile } from './settings/service-config.js';
import { type ServiceSettings, readServiceSettings } from './settings/service-settings.js';
import { startEmbeddedDatabases } from './start/embedded-databases.js';
import { Shutdown } from './start/shutdown.js';
import { startError } from './start/start-error.js';
import { type RunningService, startService } from './start/start-service.js';
import { changeText, readyText, waitingText } from './start/start-texts.js';
import { type ShardStart, untilReady } from './start/until-ready.js';

/** The part of Node's `process` that a service uses. */
export type HostProcess = Pick<NodeJS.Process, 'argv' | 'env' | 'on' | 'exit' | 'exitCode'> & {
  readonly stdout: Pick<NodeJS.WriteStream, 'write' | 'on'>;
  readonly stderr: Pick<NodeJS.WriteStream, 'write' | 'on' | 'writableLength'>;
};

/**
 * Runs a program: the service, or an operator's command, as the arguments and the environment say. Never rejects: what goes wrong is
 * printed, and the exit code is 1. One process runs one service, because its signals end the process.
 *
 * @param host Default: this process
 */
export async function runService<A extends Application>(
  definition: ServiceDefinition<A>,
  host: HostProcess = process,
): Promise<void> {
  // The service must survive when its standard output is closed.
  host.stdout.on('error', () => undefined);
  const say = (line: string): void => void host.stdout.write(`${line}\n`);
  const complain = (line: string): void => void host.stderr.write(`${line}\n`);
  const words = host.argv.slice(2);
  const demo = words.join() === 'demo' ? definition.demo : undefined;
  let settings: ServiceSettings;
  let variables = '';
  try {
    variables = namesOf(definition).variables;
    settings = readServiceSettings(definition, host.env, demo !== undefined);
  } catch (error) {
    complain(startError(error, variables) ?? String(error));
    return host.exit(1);
  }
  const command = demo === undefined ? serviceCommand(definition, words) : undefined;
  if (command !== undefined) {
    try {
      return await operate(command, definition, { configFile: settings.configFile, env: host.env, say });
    } catch (error) {
      complain(error instanceof Error ? error.message : String(error));
      host.exitCode = 1;
      return;
    }
  }
  // Standard output is for people, the log is for machines.
  const name = namesOf(definition).service;
  const logger = serviceLogger(host, settings.logLevel, { name, ...logOptions });
  const shutdown = new Shutdown(host, { timeoutMs: settings.shutdownTimeoutMs, say });
  shutdown.add(() => logTaken(host));
  try {
    await serve(definition, settings, { env: host.env, say, logger, shutdown, demo });
  } catch (error) {
    if (shutdown.begun) return;
    const fault = startError(error, variables, settings);
    if (fault !== undefined) complain(fault);
    else if (logger.isLevelEnabled('fatal'))
      logger.fatal({ stack: errorStack(error) }, logMessages.cannotStart);
    else complain(errorStack(error));
    await shutdown.exit(1);
  }
}

/** Runs an operator's command. */
async function operate(
  command: OperatorCommand | string,
  definition: ServiceDescription,
  { configFile, env, say }: Pick<ServiceSettings, 'configFile'> & Pick<HostOptions, 'env' | 'say'>,
): Promise<void> {
  if (typeof command === 'string') throw new Error(command);
  await command.run(configFile === undefined ? undefined : await configIn(definition, configFile, env), say);
}

function configIn(
  definition: ServiceDescription,
  file: string,
  environment: NodeJS.ProcessEnv,
): Promise<FrameworkConfig> {
  return readConfigFile(definition, { file, setBy: `${namesOf(definition).variables}_CONFIG`, environment });
}

interface HostOptions {
  readonly env: NodeJS.ProcessEnv;
  /** Prints a line for people. */
  readonly say: (line: string) => void;
  readonly logger: Logger;
  readonly shutdown: Shutdown;
  readonly demo: Demonstration | undefined;
}

async function serve<A extends Application>(
  definition: ServiceDefinition<A>,
  settings: ServiceSettings,
  options: HostOptions,
): Promise<void> {
  const { say, logger, shutdown, demo } = options;
  const { config, consoleToken, embeddedFile } = await configOf(definition, settings, options);
  const onRestartNeeded = (): void => void shutdown.exit(1);
  const handlers = demo?.handlers ?? [];
  const starting = startService(definition, { ...settings, config, handlers, logger, onRestartNeeded });
  // A start that fails has closed everything itself.
  const started = starting.catch(() => undefined);
  shutdown.add(async () => (await started)?.stop());
  const running = await starting;
  const { service } = running;
  const sayUnlessEnding = (text: string): void => {
    if (!shutdown.begun) say(text);
  };
  const fragment = consoleToken === undefined ? '' : `#token=${consoleToken}`;
  await untilReady(service, config.sharding, {
    onWaiting: (starts) => {
      const text = waitingText(starts);
      sayUnlessEnding(running.url === undefined ? text : `Listening on ${running.url}. ${text}`);
    },
    onReady: (starts) => {
      const ready = readyService(running, starts, options);
      if (ready !== undefined && demo !== undefined) startDemo(demo, ready, options);
      sayUnlessEnding(
        readyText(starts, {
          ...settings,
          name: definition.name,
          url: running.url,
          docsUrl: running.docsUrl,
          isOpen: service.authentication === undefined,
          consoleUrl: running.consoleUrl && `${running.consoleUrl}${fragment}`,
          embeddedFile,
          example: ready && exampleOf(definition, ready),
          doctor: definition.commands?.doctor,
        }),
      );
    },
    onChange: (start) => {
      sayUnlessEnding(changeText(start));
      if (start.ready) logger.info({ shard: start.place }, logMessages.shardReady);
    },
  });
}

/** @returns `undefined` when the process answers no requests */
function readyService(
  { url, service: { authentication } }: RunningService,
  starts: readonly ShardStart[],
  { say, shutdown }: HostOptions,
): ReadyService | undefined {
  if (url === undefined) return undefined;
  const shards = starts.filter(({ ready }) => ready).map(({ shard }) => shard);
  return { url, needsToken: authentication !== undefined, shards, say, signal: shutdown.signal };
}

/** An example is worth no failure. */
function exampleOf<A extends Application>(
  { http }: ServiceDefinition<A>,
  ready: ReadyService,
): string | undefined {
  try {
    return http?.example?.(ready);
  } catch {
    return undefined;
  }
}

function startDemo(demo: Demonstration, ready: ReadyService, { say, shutdown }: HostOptions): void {
  const running = (async () => demo.run(ready))().catch((error: unknown) => {
    if (!ready.signal.aborted) say(`The demonstration ends: ${String(error)}`);
  });
  shutdown.add(() => running);
}

async function configOf(
  definition: ServiceDescription,
  { configFile, dataFolder, firstRelay }: ServiceSettings,
  { env, say, shutdown, demo }: HostOptions,
): Promise<{
  readonly config: FrameworkConfig;
  readonly consoleToken?: string;
  readonly embeddedFile?: string;
}> {
  if (configFile !== undefined) return { config: await configIn(definition, configFile, env) };
  const embedded = await startEmbeddedDatabases(definition, {
    folder: dataFolder ?? (demo && (demo.folder ?? resolve('.data/demo'))),
    progress: say,
    environment: env,
  });
  shutdown.add(embedded.stop);
  const config = {
    ...embedded.config,
    relay: [...firstRelay, ...embedded.config.relay],
    delivery: { ...demo?.delivery, ...embedded.config.delivery },
  };
  const embeddedFile = shortened(embedded.configFile);
  if (Object.keys(config.operator).length > 0) return { config, embeddedFile };
  // A first trial includes the operator's view. The token is printed only to the terminal.
  const consoleToken = randomBytes(32).toString('hex');
  const operator = { port: 0, token: consoleToken, readOnly: false };
  return { config: { ...config, operator }, consoleToken, embeddedFile };
}

/** A path relative to the working directory, unless the file is outside of it. */
function shortened(file: string): string {
  const fromHere = relative(process.cwd(), file);
  return fromHere.startsWith('..') ? file : fromHere;
}
