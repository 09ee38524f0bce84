import type { FrameworkConfig } from '@framework/core';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';

import { type OperatorCommand, operatorCommand } from './operator-command.js';
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

// The service must survive when nobody reads its standard output any more.
process.stdout.on('error', () => undefined);
await main();

async function main(): Promise<void> {
  const settings = settingsOrExit();
  const command = operatorCommand(process.argv.slice(2));
  if (command !== undefined) return operate(command, settings);
  // Standard output is for people, the log is for machines.
  const logger = serviceLogger(settings.logLevel, logOptions);
  const shutdown = new Shutdown({ timeoutMs: settings.shutdownTimeoutMs, say });
  shutdown.add(logTaken);
  try {
    await serve(settings, logger, shutdown);
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

async function serve(settings: ServiceSettings, logger: Logger, shutdown: Shutdown): Promise<void> {
  const config = await configOf(settings, shutdown);
  const onRestartNeeded = (): void => void shutdown.exit(1);
  const options = { ...settings, config, logger, onRestartNeeded };
  const { role } = settings;
  const { service, url, stop } =
    role === 'worker' || role === 'relay'
      ? await startWorker({ ...options, role })
      : await startService({ ...options, role });
  shutdown.add(stop);
  const sayUnlessEnding = (text: string): void => {
    if (!shutdown.begun) say(text);
  };
  await untilReady(service, config.sharding, {
    onWaiting: (starts) => {
      const text = waitingText(starts);
      sayUnlessEnding(url === undefined ? text : `Listening on ${url}. ${text}`);
    },
    onReady: (starts) =>
      sayUnlessEnding(
        url === undefined
          ? workerReadyText(role === 'relay' ? role : 'worker', starts)
          : readyText(url, starts, { ...settings, isOpen: service.authentication === undefined }),
      ),
    onChange: (start) => {
      sayUnlessEnding(changeText(start));
      if (start.ready) logger.info({ shard: start.place }, logMessages.shardReady);
    },
  });
}

async function configOf(
  { configFile, dataFolder, firstRelay }: ServiceSettings,
  shutdown: Shutdown,
): Promise<FrameworkConfig> {
  if (configFile !== undefined) return readConfigFile(configFile, process.env);
  const embedded = await startEmbeddedDatabases(dataFolder ?? embeddedFolder, say, process.env);
  shutdown.add(embedded.stop);
  return { ...embedded.config, relay: [...firstRelay, ...embedded.config.relay] };
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
