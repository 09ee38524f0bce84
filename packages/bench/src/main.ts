import { mkdir, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Benchmark } from './benchmark/benchmark.js';
import { type CommandLine, commandLine } from './benchmark/command-line.js';
import { type Figure, isReached } from './benchmark/figure.js';
import { fallenRatios, isRatio, recordRatios, recordedRatios } from './benchmark/recorded-ratios.js';
import { environmentOf, headingOf, tableOf } from './benchmark/report.js';
import { BenchServer } from './database/bench-server.js';
import { backlog } from './delivery/backlog.js';
import { disturbedThroughput } from './delivery/disturbed-throughput.js';
import { heldTransaction } from './delivery/held-transaction.js';
import { idleStatements } from './delivery/idle-statements.js';
import { lag } from './delivery/lag.js';
import { rowVersionsPerEvent } from './delivery/row-versions.js';
import { takeover } from './delivery/takeover.js';
import { hotWallet } from './deposits/hot-wallet.js';
import { logGrowth } from './deposits/log-growth.js';
import { modelsPerAction } from './deposits/models-per-action.js';
import { oneClient } from './deposits/one-client.js';
import { overHttp } from './deposits/over-http.js';
import { serviceStart } from './deposits/service-start.js';
import { sixteenClients } from './deposits/sixteen-clients.js';
import { sixtyFourClients } from './deposits/sixty-four-clients.js';
import { twoShards } from './deposits/two-shards.js';

/** Whose figures are ratios, which mean the same on every machine: the short form runs them. */
const ofRatios: readonly Benchmark[] = [
  sixteenClients,
  sixtyFourClients,
  oneClient,
  hotWallet,
  overHttp,
  logGrowth,
  backlog,
  disturbedThroughput,
  heldTransaction,
];
const ofAbsolutes: readonly Benchmark[] = [
  twoShards,
  modelsPerAction,
  serviceStart,
  lag,
  rowVersionsPerEvent,
  takeover,
  idleStatements,
];

const options = commandLine(process.argv.slice(2));
const { environment, figures } = await measure(options);
const shown = options.short ? figures.filter(isRatio) : figures;
say(`\n${headingOf(environment)}\n\n${tableOf(shown)}`);
if (options.json !== undefined) {
  await mkdir(dirname(options.json), { recursive: true });
  await writeFile(options.json, `${JSON.stringify({ environment, figures: shown }, undefined, 2)}\n`);
}
process.exitCode = (await isGood(shown)) ? 0 : 1;

async function measure({ parts, rounds, scale, short }: CommandLine) {
  const chosen = [...ofRatios, ...(short ? [] : ofAbsolutes)].filter(
    ({ name }) => parts.length === 0 || parts.some((part) => name.includes(part)),
  );
  const server = await BenchServer.start();
  const measured: Figure[] = [];
  try {
    for (const benchmark of chosen) {
      say(`${benchmark.name} …`);
      measured.push(...(await benchmark.run({ server, rounds, scale, say })));
    }
    return { environment: environmentOf(await server.version()), figures: measured };
  } catch (error) {
    say(tableOf(measured));
    throw error;
  } finally {
    await server.stop();
  }
}

/** Whether this run found what it should have: the bounds, or in the short form what was recorded. */
async function isGood(found: readonly Figure[]): Promise<boolean> {
  if (!options.short) return found.every(isReached);
  if (options.record) {
    await recordRatios(found, environment);
    return true;
  }
  const fallen = fallenRatios(found, await recordedRatios());
  for (const line of fallen) say(line);
  return fallen.length === 0;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
