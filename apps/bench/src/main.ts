import { mkdir, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { underAttack } from './attacks/under-attack.js';
import { type Benchmark, type Figure, isReached } from './benchmark/benchmark.js';
import { commandLine } from './benchmark/command-line.js';
import {
  checkRecordable,
  isRatio,
  medianFigures,
  recordRatios,
  recordedRatios,
} from './benchmark/recorded-ratios.js';
import { commitIn, environmentOf, headingOf, tableOf } from './benchmark/report.js';
import { compareWithRecorded, lineOf } from './benchmark/short-form.js';
import { eachGuardCost, guardCost } from './callers/guard-cost.js';
import { BenchServer } from './database/bench-server.js';
import { backlog } from './delivery/backlog.js';
import { disturbedThroughput } from './delivery/disturbed-throughput.js';
import { drain } from './delivery/drain.js';
import { heldTransaction } from './delivery/held-transaction.js';
import { idleStatements } from './delivery/idle-statements.js';
import { lag } from './delivery/lag.js';
import { rowVersionsPerEvent } from './delivery/row-versions.js';
import { takeover } from './delivery/takeover.js';
import { hotWallet } from './deposits/hot-wallet.js';
import { logGrowth } from './deposits/log-growth.js';
import { modelsPerAction } from './deposits/models-per-action.js';
import { oneClient } from './deposits/one-client.js';
import { httpLayer } from './callers/http-layer.js';
import { overHttp } from './deposits/over-http.js';
import { serviceStart } from './deposits/service-start.js';
import { sixteenClients } from './deposits/sixteen-clients.js';
import { sixtyFourClients } from './deposits/sixty-four-clients.js';
import { telemetryCost } from './deposits/telemetry.js';
import { twoShards } from './deposits/two-shards.js';
import { relayLag } from './relay/relay-lag.js';
import { relayOutage } from './relay/relay-outage.js';
import { relayThroughput } from './relay/relay-throughput.js';

/** The benchmarks whose figures are ratios, which are comparable between machines: the short form runs them. */
const ofRatios: readonly Benchmark[] = [
  sixteenClients,
  sixtyFourClients,
  oneClient,
  hotWallet,
  overHttp,
  httpLayer,
  logGrowth,
  backlog,
  disturbedThroughput,
  drain,
  heldTransaction,
];
const ofAbsolutes: readonly Benchmark[] = [
  // Attackers need a processor of their own, so that its ratios are comparable only on a machine that has nothing else to do.
  underAttack,
  twoShards,
  modelsPerAction,
  guardCost,
  eachGuardCost,
  telemetryCost,
  serviceStart,
  lag,
  rowVersionsPerEvent,
  takeover,
  idleStatements,
  relayThroughput,
  relayLag,
  relayOutage,
];

const { parts, rounds, scale, runs, short, record, json } = commandLine(process.argv.slice(2));
const chosen = [...ofRatios, ...(short ? [] : ofAbsolutes)].filter(
  ({ name }) => parts.length === 0 || parts.some((part) => name.includes(part)),
);
if (record) checkRecordable(commitIn(process.cwd()));
const server = await BenchServer.start();
try {
  const isGood = short && !record ? await compare() : await measure();
  process.exitCode = isGood ? 0 : 1;
} finally {
  await server.stop();
}

/** Whether no ratio has become worse than the recorded one. */
async function compare(): Promise<boolean> {
  const recorded = await recordedRatios();
  const comparisons = await compareWithRecorded(chosen, { server, rounds, scale, say }, recorded);
  say('');
  for (const comparison of comparisons) say(lineOf(comparison));
  const passedCount = comparisons.filter(({ isGood }) => isGood).length;
  say(`${passedCount} passed, ${comparisons.length - passedCount} failed`);
  return passedCount === comparisons.length;
}

/** Measures, and returns whether every figure is within its bounds; figures that are recorded need not be. */
async function measure(): Promise<boolean> {
  const measured: (readonly Figure[])[] = [];
  while (measured.length < runs) measured.push(await measureOnce());
  const environment = environmentOf(await server.version());
  const figures = medianFigures(measured).filter((figure) => !record || isRatio(figure));
  say(`\n${headingOf(environment)}\n\n${tableOf(figures)}`);
  if (json !== undefined) {
    await mkdir(dirname(json), { recursive: true });
    await writeFile(json, `${JSON.stringify({ environment, figures }, undefined, 2)}\n`);
  }
  if (record) await recordRatios(figures, environment, parts.length === 0);
  return record || figures.every(isReached);
}

async function measureOnce(): Promise<readonly Figure[]> {
  const measured: Figure[] = [];
  try {
    for (const benchmark of chosen) {
      say(`${benchmark.name} …`);
      measured.push(...(await benchmark.run({ server, rounds, scale, say })));
    }
  } catch (error) {
    say(tableOf(measured));
    throw error;
  }
  return measured;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
