import { ConfigurationError, type FrameworkConfig } from '@framework/core';
import { errorStack } from '@framework/http';
import { randomBytes } from 'node:crypto';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';

import { type OperatorCommand, operatorCommand } from './operator-command.js';
import { Demo } from './process/demo.js';
import { startEmbeddedDatabases } from './process/embedded-databases.js';
import { logOptions } from './process/log-format.js';
import { logMessages } from './process/log-messages.js';
import { logTaken, serviceLogger } from './process/service-logger.js';
import { type ServiceSettings, readConfigFile, readServiceSettings } from './process/service-settings.js';
import { Shutdown, startError } from './process/shutdown.js';
import { startService, startWorker } from './process/start.js';
import { changeText, readyText, untilReady, waitingText, workerReadyText } from './process/until-ready.js';

/**
 * The folder of the embedded databases, in the repository's root, wherever the process was started. This file is at the same depth
 * in `src` and in `dist`.
 */
const embeddedFolder = fileURLToPath(new URL('../../../.data/postgres', import.meta.url));
/** The folder of the demonstration's databases, whose handlers no other process has. */
const demoFolder = fileURLToPath(new URL('../../../.data/demo', import.meta.url));

/** The part of Node's `process` that the service uses. */
export type HostProcess = Pick<NodeJS.Process, 'argv' | 'env' | 'on' | 'exit' | 'exitCode'> & {
  readonly stdout: Pick<NodeJS.WriteStream, 'write'>;
  readonly stderr: Pick<NodeJS.WriteStream, 'write' | 'on' | 'writableLength'>;
};

/** Runs the program: the service, a demonstration or an operator's command, as the arguments and the environment say. */
export async function runService(host: HostProcess): Promise<void> {
  const say = (line: string): void => void host.stdout.write(`${line}\n`);
  const complain = (line: string): void => void host.stderr.write(`${line}\n`);
  let settings: ServiceSettings;
  try {
    settings = readServiceSettings(host.env);
  } catch (error) {
    complain(startError(error, undefined) ?? String(error));
    return host.exit(1);
  }
  const words = host.argv.slice(2);
  const isDemo = words.join() === 'demo';
  const command = isDemo ? undefined : operatorCommand(words);
  if (command !== undefined) {
    try {
      return await operate(command, settings, { env: host.env, say });
    } catch (error) {
      complain(error instanceof Error ? error.message : String(error));
      host.exitCode = 1;
      return;
    }
  }
  // Standard output is for people, the log is for machines.
  // The failures of a demonstration are intended, and seen in the console.
  const level = isDemo && host.env['LOG_LEVEL'] === undefined ? 'fatal' : settings.logLevel;
  const logger = serviceLogger(host, level, logOptions);
  const shutdown = new Shutdown(host, { timeoutMs: settings.shutdownTimeoutMs, say });
  shutdown.add(() => logTaken(host));
  try {
    const { env } = host;
    await serve(settings, { env, say, logger, shutdown, demo: isDemo ? new Demo() : undefined });
  } catch (error) {
    if (shutdown.begun) return;
    const fault = startError(error, settings);
    if (fault === undefined) logger.fatal({ stack: errorStack(error) }, logMessages.cannotStart);
    else complain(fault);
    await shutdown.exit(1);
  }
}

/** Runs an operator's command. */
async function operate(
  command: OperatorCommand | string,
  { configFile }: ServiceSettings,
  { env, say }: Pick<ServeOptions, 'env' | 'say'>,
): Promise<void> {
  if (typeof command === 'string') throw new Error(command);
  await command.run(configFile === undefined ? undefined : await readConfigFile(configFile, env), say);
}

interface ServeOptions {
  readonly env: NodeJS.ProcessEnv;
  /** Prints a line for people. */
  readonly say: (line: string) => void;
  readonly logger: Logger;
  readonly shutdown: Shutdown;
  readonly demo: Demo | undefined;
}

async function serve(settings: ServiceSettings, options: ServeOptions): Promise<void> {
  const { say, logger, shutdown, demo } = options;
  const { config, consoleToken, embeddedFile } = await configOf(settings, options);
  const onRestartNeeded = (): void => void shutdown.exit(1);
  const started = { ...settings, config, logger, onRestartNeeded };
  const { role } = settings;
  const { service, url, consoleUrl, stop } =
    role === 'worker' || role === 'relay'
      ? await startWorker({ ...started, role })
      : await startService({ ...started, role, handlers: demo?.handlers ?? [] });
  shutdown.add(stop);
  if (demo !== undefined) shutdown.add(() => demo.stop());
  const fragment = consoleToken === undefined ? '' : `#token=${consoleToken}`;
  const sayUnlessEnding = (text: string): void => {
    if (!shutdown.begun) say(text);
  };
  await untilReady(service, config.sharding, {
    onWaiting: (starts) => {
      const text = waitingText(starts);
      sayUnlessEnding(url === undefined ? text : `Listening on ${url}. ${text}`);
    },
    onReady: (starts) => {
      if (url === undefined)
        return sayUnlessEnding(workerReadyText(role === 'relay' ? role : 'worker', starts));
      demo?.start(url, say);
      return sayUnlessEnding(
        readyText(url, starts, {
          ...settings,
          isOpen: service.authentication === undefined,
          consoleUrl: consoleUrl && `${consoleUrl}${fragment}`,
          embeddedFile,
        }),
      );
    },
    onChange: (start) => {
      sayUnlessEnding(changeText(start));
      if (start.ready) logger.info({ shard: start.place }, logMessages.shardReady);
    },
  });
}

async function configOf(
  { configFile, dataFolder, firstRelay }: ServiceSettings,
  { env, say, shutdown, demo }: ServeOptions,
): Promise<{
  readonly config: FrameworkConfig;
  readonly consoleToken?: string;
  readonly embeddedFile?: string;
}> {
  if (configFile !== undefined) {
    if (demo === undefined) return { config: await readConfigFile(configFile, env) };
    const message = 'names databases, but the demonstration has its own: leave it out';
    throw new ConfigurationError([{ path: 'WALLET_CONFIG', message }]);
  }
  const folder = dataFolder ?? (demo === undefined ? embeddedFolder : demoFolder);
  const embedded = await startEmbeddedDatabases(folder, say, env);
  shutdown.add(embedded.stop);
  const relay = [...firstRelay, ...embedded.config.relay];
  const config = { ...embedded.config, relay, ...(demo && { delivery: demo.deliveryIn(embedded.config) }) };
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
