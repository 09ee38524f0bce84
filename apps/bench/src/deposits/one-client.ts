import type { Benchmark } from '../benchmark/benchmark.js';
import { median } from '../benchmark/measure-contenders.js';
import type { DepositContender } from './deposit-contender.js';
import { type DepositTarget, anyOf, openTargets, openEnvironment } from './deposit-environment.js';
import { fullDurationMs } from './measure-deposits.js';
import { frameworkContender, groupedContender } from './contenders/framework-contender.js';
import { verifyDeposits } from './verify-deposits.js';

const walletCount = 2_000;

/**
 * Deposits one after the other: the cost of group commit when there are no concurrent actions.
 *
 * The contenders differ by less than the machine does from one second to the next, so they take turns deposit by deposit.
 */
export const oneClient: Benchmark = {
  name: 'deposits-1-client',
  async run({ server, rounds, scale, say }) {
    const environment = await openEnvironment(server);
    const contenders = [frameworkContender(environment), groupedContender(environment)] as const;
    const targets = await openTargets(environment, walletCount);
    const mediansMs: (readonly number[])[] = [];
    let count = 0;
    for (let round = 0; round <= rounds; round++) {
      const latenciesMs = await inTurns(contenders, targets, fullDurationMs * scale);
      count += latenciesMs.flat().length;
      await verifyDeposits(environment, targets, count);
      const ofRound = latenciesMs.map(median);
      say(
        `  ${round === 0 ? 'warm-up' : `round ${round}`}: ${ofRound.map((ms) => ms.toFixed(3)).join(' and ')} ms`,
      );
      if (round > 0) mediansMs.push(ofRound);
    }
    await environment.close();
    const [perAction, grouped] = contenders.map((_contender, index) =>
      median(mediansMs.map((ms) => ms[index] ?? Number.NaN)),
    );
    if (perAction === undefined || grouped === undefined) throw new Error('A contender was not measured');
    return [
      {
        title: 'one client: latency (median), group commit ÷ per action',
        value: grouped / perAction,
        unit: '×',
        atMost: 1.05,
        measured: { framework: perAction, 'framework, grouped': grouped },
      },
    ];
  },
};

/** Lets the contenders deposit in turn for a while; returns how long each deposit of each contender took, in milliseconds. */
async function inTurns(
  contenders: readonly DepositContender[],
  targets: readonly DepositTarget[],
  durationMs: number,
): Promise<readonly number[][]> {
  const latenciesMs: number[][] = contenders.map(() => []);
  const untilMs = performance.now() + durationMs;
  while (performance.now() < untilMs) {
    for (const [index, { deposit }] of contenders.entries()) {
      const startedAtMs = performance.now();
      await deposit(anyOf(targets));
      latenciesMs[index]?.push(performance.now() - startedAtMs);
    }
  }
  return latenciesMs;
}
