import { ConfigurationError, type FrameworkConfig } from '@framework/core';
import { randomBytes } from 'node:crypto';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';

import { type OperatorCommand, operatorCommand } from './operator-command.js';
import { Demo } from './process/demo.js';
import { startEmbeddedDatabases } from './process/embedded-databases.js';
import { errorStack, logOptions } from './process/log-format.js';
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
/** That of the demonstration, whose handlers no other process has. */
const demoFolder = fileURLToPath(new URL('../../../.data/demo', import.meta.url));

// The service must survive when nobody reads its standard output any more.
process.stdout.on('error', () => undefined);
await main();

async function main(): Promise<void> {
  const settings = settingsOrExit();
  const words = process.argv.slice(2);
  const isDemo = words.join() === 'demo';
  const command = isDemo ? undefined : operatorCommand(words);
  if (command !== undefined) return operate(command, settings);
  // Standard output is for people, the log is for machines.
  // The failures of a demonstration are intended, and seen in the console.
  const level = isDemo && process.env['LOG_LEVEL'] === undefined ? 'fatal' : settings.logLevel;
  const logger = serviceLogger(level, logOptions);
  const shutdown = new Shutdown({ timeoutMs: settings.shutdownTimeoutMs, say });
  shutdown.add(logTaken);
  try {
    await serve(settings, { logger, shutdown, demo: isDemo ? new Demo() : undefined });
  } catch (error) {
    if (shutdown.begun) return;
    const fault = startError(error, settings);
    if (fault === undefined) logger.fatal({ stack: errorStack(error) }, logMessages.cannotStart);
    else process.stderr.write(`${fault}\n`);
    await shutdown.exit(1);
  }
}

function settingsOrExit(): ServiceSettings {
  try {
    return readServiceSettings(process.env);
  } catch (error) {
    process.stderr.write(`${startError(error, undefined) ?? String(error)}\n`);
    return process.exit(1);
  }
}

/** Runs an operator's command, and ends. */
async function operate(command: OperatorCommand | string, { configFile }: ServiceSettings): Promise<void> {
  try {
    if (typeof command === 'string') throw new Error(command);
    await command.run(
      configFile === undefined ? undefined : await readConfigFile(configFile, process.env),
      say,
    );
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  }
}

interface Around {
  readonly logger: Logger;
  readonly shutdown: Shutdown;
  readonly demo: Demo | undefined;
}

async function serve(settings: ServiceSettings, { logger, shutdown, demo }: Around): Promise<void> {
  const { config, consoleToken, embeddedFile } = await configOf(settings, shutdown, demo);
  const onRestartNeeded = (): void => void shutdown.exit(1);
  const options = { ...settings, config, logger, onRestartNeeded };
  const { role } = settings;
  const { service, url, consoleUrl, stop } =
    role === 'worker' || role === 'relay'
      ? await startWorker({ ...options, role })
      : await startService({ ...options, role, handlers: demo?.handlers ?? [] });
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
  shutdown: Shutdown,
  demo: Demo | undefined,
): Promise<{
  readonly config: FrameworkConfig;
  readonly consoleToken?: string;
  readonly embeddedFile?: string;
}> {
  if (configFile !== undefined) {
    if (demo === undefined) return { config: await readConfigFile(configFile, process.env) };
    const message = 'names databases, but the demonstration has its own: leave it out';
    throw new ConfigurationError([{ path: 'WALLET_CONFIG', message }]);
  }
  const folder = dataFolder ?? (demo === undefined ? embeddedFolder : demoFolder);
  const embedded = await startEmbeddedDatabases(folder, say, process.env);
  shutdown.add(embedded.stop);
  const relay = [...firstRelay, ...embedded.config.relay];
  const config = { ...embedded.config, relay, ...(demo && { delivery: demo.deliveryIn(embedded.config) }) };
  const embeddedFile = shortened(embedded.configFile);
  if (Object.keys(config.operator).length > 0) return { config, embeddedFile };
  // Whoever tries the service may look at it as an operator does: only who reads the terminal has the token.
  const consoleToken = randomBytes(32).toString('hex');
  const operator = { port: 0, token: consoleToken, readOnly: false };
  return { config: { ...config, operator }, consoleToken, embeddedFile };
}

/** A path as somebody in this folder would type it. */
function shortened(file: string): string {
  const fromHere = relative(process.cwd(), file);
  return fromHere.startsWith('..') ? file : fromHere;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
