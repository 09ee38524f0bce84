import { destination, pino } from 'pino';

import { readConfigFile, readServiceSettings } from '../../src/process/service-settings.js';
import { Shutdown } from '../../src/process/shutdown.js';
import { startWorker } from '../../src/process/start.js';
import { recordingHandlers } from './recording-handlers.js';

// A worker as `main.ts` starts it, with handlers that record what they receive in the database RECORDS_URL.
const settings = readServiceSettings(process.env);
const { WALLET_CONFIG = '', RECORDS_URL = '' } = process.env;
const say = (line: string): void => void process.stdout.write(`${line}\n`);
const shutdown = new Shutdown(process, { timeoutMs: settings.shutdownTimeoutMs, say });
const worker = await startWorker({
  ...settings,
  role: 'worker',
  config: await readConfigFile(WALLET_CONFIG),
  logger: pino({ level: settings.logLevel }, destination(2)),
  handlers: recordingHandlers(RECORDS_URL),
});
shutdown.add(worker.stop);
await worker.service.databases.ready();
say('The recording worker is ready.');
