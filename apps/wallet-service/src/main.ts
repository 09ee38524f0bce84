import { fileURLToPath } from 'node:url';
import type { FrameworkConfig } from '@framework/core';
import type { Logger } from 'pino';
import { startEmbeddedDatabases } from './configuration/embedded-databases.js';
import { readConfigFile } from './configuration/read-config-file.js';
import { type ServiceSettings, readServiceSettings } from './configuration/service-settings.js';
import { errorStack } from './error-stack.js';
import { readyText, workerReadyText } from './process/ready-text.js';
import { serviceLogger } from './process/service-logger.js';
import { Shutdown } from './process/shutdown.js';
import { startFault } from './process/start-fault.js';
import { untilReady } from './process/until-ready.js';
import { startService } from './start-service.js';
import { startWorker } from './start-worker.js';

/** In the repository's folder, wherever the process was started; this file stands as deep in `src` as in `dist`. */
const embeddedFolder = fileURLToPath(new URL('../../../.data/postgres', import.meta.url));

await main();

async function main(): Promise<void> {
  const settings = settingsOrExit();
  // Standard output is for people, the log for machines.
  const logger = serviceLogger(settings.logLevel);
  const shutdown = new Shutdown({ timeoutMs: settings.shutdownTimeoutMs, say });
  try {
    await serve(settings, logger, shutdown);
  } catch (error) {
    if (shutdown.begun) return;
    const fault = startFault(error, settings);
    if (fault === undefined) logger.fatal({ stack: errorStack(error) }, 'the service cannot start');
    else process.stderr.write(`${fault}\n`);
    await shutdown.exit(1);
  }
}

function settingsOrExit(): ServiceSettings {
  try {
    return readServiceSettings(process.env);
  } catch (error) {
    process.stderr.write(`${startFault(error, undefined) ?? String(error)}\n`);
    return process.exit(1);
  }
}

async function serve(settings: ServiceSettings, logger: Logger, shutdown: Shutdown): Promise<void> {
  const config = await configOf(settings, shutdown);
  const onRestartNeeded = (): void => void shutdown.exit(1);
  const options = { ...settings, config, logger, onRestartNeeded };
  const { role } = settings;
  const { service, url, stop } =
    role === 'worker' ? startWorker(options) : await startService({ ...options, role });
  shutdown.add(stop);
  const databasesReady = untilReady(service.databases, (line) => {
    say(url === undefined ? line : `Listening on ${url}. ${line}`);
  });
  // A handler that is new here has its place before anybody is told. Side by side: a database that refuses a handler ends the
  // process also while another one is down.
  await Promise.all([databasesReady, service.delivery.started()]);
  if (!shutdown.begun) say(url === undefined ? workerReadyText(config) : readyText(url, config));
}

async function configOf({ configFile }: ServiceSettings, shutdown: Shutdown): Promise<FrameworkConfig> {
  if (configFile !== undefined) return readConfigFile(configFile);
  const embedded = await startEmbeddedDatabases(embeddedFolder, say);
  shutdown.add(embedded.stop);
  return embedded.config;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
