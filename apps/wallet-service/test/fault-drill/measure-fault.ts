import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { rowsOf } from '../database-session.js';
import { expectSettled } from '../faults/expect-settled.js';
import { FaultHarness } from '../faults/fault-harness.js';
import { moneyByCurrency } from '../money-in-all.js';
import type { Answer, WalletClient } from '../wallet-client.js';
import { DrillScene } from './drill-scene.js';
import type { Fault } from './faults.js';
import { shortLog } from './short-log.js';

/** Long enough that the checks do not cause a load of their own. */
const probePauseMs = 200;
const probeTimeoutMs = 5_000;
const settledWithinMs = 60_000;

/** The observations about a fault. */
export interface FaultMeasurement {
  /** What the process reported while the fault lasted. */
  readonly readiness: string;
  readonly answer: string;
  readonly log: readonly string[];
  /** How often the traffic got each answer, including before and after the fault. */
  readonly answers: Readonly<Record<string, number>>;
  /** Seconds from the end of the fault until everything worked again permanently; undefined if it did not in time. */
  readonly healedAfterS: Readonly<Record<Healed, number | undefined>>;
  /** An error if money was made or lost, or a transfer was not decided exactly once; undefined if everything is right. */
  readonly wrong: unknown;
}

type Healed = 'requests' | 'readiness' | 'new event' | 'backlog';

/**
 * Causes a fault while traffic continues and transfers wait, and measures how soon after its end everything works.
 *
 * @param patienceMs how long to wait for that
 */
export async function measureFault(fault: Fault, patienceMs: number): Promise<FaultMeasurement> {
  const stage = await (fault.stage?.() ?? FaultHarness.start());
  try {
    const scene = await DrillScene.on(stage);
    const traffic = await stage.traffic();
    if (fault.hold !== undefined) {
      await fault.hold(scene);
      await scene.sendWaiting();
    }
    const loggedBefore = stage.log.length;
    const untilMs = performance.now() + fault.lastsMs;
    await fault.begin(scene);
    if (fault.hold === undefined) await scene.sendWaiting();
    const answer = textOf(await scene.deposit(scene.probes[1], scene.asked).catch(String));
    const readiness = textOf(await scene.asked.get('/health/ready').catch(String));
    await delay(Math.max(0, untilMs - performance.now()));
    const log = shortLog(stage.log.slice(loggedBefore));
    await fault.end(scene);
    const healedAfterS = await measureHealing(scene, patienceMs);
    const wrong = await expectSettled(stage.shards, traffic, settledWithinMs)
      .then(() => expectDecidedOnce(scene))
      .catch((error: unknown) => error);
    return {
      readiness,
      answer,
      log,
      answers: Object.fromEntries(traffic.recorder.counts),
      healedAfterS,
      wrong,
    };
  } finally {
    await stage.end();
  }
}

/** Measures, in parallel and from now on, how long each part of the service takes to work again. */
async function measureHealing(
  scene: DrillScene,
  patienceMs: number,
): Promise<FaultMeasurement['healedAfterS']> {
  const endedMs = performance.now();
  const over = AbortSignal.timeout(patienceMs);
  const afterS = (): number | undefined => (over.aborted ? undefined : (performance.now() - endedMs) / 1_000);
  const backlog = untilTrue(async () => (await scene.unfinishedCount()) === 0, over).then(afterS);
  const newEvent = scene.transferBetweenProbes(over).then(afterS);
  const all = Promise.all([backlog, newEvent]);
  const isOver = new AbortController();
  void all.finally(() => isOver.abort());
  /** Checks something until everything works; returns the time since which it has worked without a failure. */
  const wellSince = async (isWell: () => Promise<boolean>): Promise<number | undefined> => {
    let since: number | undefined;
    do {
      const well = await isWell().catch(() => false);
      since = well ? (since ?? afterS()) : undefined;
      await delay(probePauseMs);
    } while (!over.aborted && !(isOver.signal.aborted && since !== undefined));
    return since;
  };
  const { client } = scene.stage;
  const [requests, readiness] = await Promise.all([
    wellSince(async () => {
      const answers = await Promise.all(scene.probes.map((probe) => scene.deposit(probe)));
      return answers.every(({ status }) => status === 200);
    }),
    wellSince(async () => (await ready(client)).status === 200),
  ]);
  const [backlogS, newEventS] = await all;
  return { requests, readiness, 'new event': newEventS, backlog: backlogS };
}

function ready(client: WalletClient): Promise<Answer> {
  return client.send('/health/ready', { signal: AbortSignal.timeout(probeTimeoutMs) });
}

async function untilTrue(isSo: () => Promise<boolean>, over: AbortSignal): Promise<void> {
  while (!over.aborted && !(await isSo().catch(() => false))) await delay(probePauseMs);
}

/** Checks that each waiting transfer was received once, and that their destination has the money of all of them. */
async function expectDecidedOnce(scene: DrillScene): Promise<void> {
  const { shards, client } = scene.stage;
  const decisions = `select payload ->> 'transferId' as id, count(*)::int as count from eventlog.events
    where event_type in ('TransferReceivedEvent', 'TransferRefusedEvent') group by 1`;
  const counts = await Promise.all([shards.global, shards.mexico].map((each) => rowsOf(each, decisions)));
  const countOf = new Map(counts.flat().map(({ id, count }) => [id, count]));
  assert.deepEqual(
    [...countOf].filter(([, count]) => count !== 1),
    [],
  );
  assert.deepEqual(
    scene.waiting.filter((id) => countOf.get(id) === undefined),
    [],
  );
  const moved = scene.waiting.length;
  const [source, dest] = await Promise.all([scene.source, scene.dest].map(({ id }) => client.wallet(id)));
  assert.equal(Number(source!.balance), Number(scene.source.balance) - moved);
  assert.equal(Number(dest!.balance), Number(scene.dest.balance) + moved);
  const { CHF } = await moneyByCurrency(shards);
  assert.equal(Number(CHF), Number(scene.source.balance) + Number(scene.dest.balance));
}

function textOf(answer: Answer | string): string {
  if (typeof answer === 'string') return `none (${answer})`;
  const { status, body } = answer;
  const shards = body['shards'] as readonly Readonly<Record<string, unknown>>[] | undefined;
  const said =
    shards?.map(({ name, status: is, cause, detail }) =>
      [name, is, cause, detail].filter(Boolean).join(' '),
    ) ?? [body['code'], body['detail']].filter(Boolean);
  return [status, ...said].join('; ');
}
