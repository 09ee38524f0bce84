import type { Benchmark } from '../benchmark/benchmark.js';
import { median } from '../benchmark/measure-sides.js';
import type { DepositSide } from './deposit-side.js';
import { type DepositTarget, anyOf, openTargets, openWorld } from './deposit-world.js';
import { fullDurationMs } from './measure-deposits.js';
import { frameworkSide, groupedSide } from './sides/framework-side.js';
import { verifyDeposits } from './verify-deposits.js';

const walletCount = 2_000;

/**
 * Deposits one after the other: what grouped commit costs when there is nobody to share it with.
 *
 * The sides differ by less than the machine does from one second to the next, so they take turns deposit by deposit.
 */
export const oneClient: Benchmark = {
  name: 'deposits-1-client',
  async run({ server, rounds, scale, say }) {
    const world = await openWorld(server);
    const sides = [frameworkSide(world), groupedSide(world)] as const;
    const targets = await openTargets(world, walletCount);
    const mediansMs: (readonly number[])[] = [];
    let count = 0;
    for (let round = 0; round <= rounds; round++) {
      const latenciesMs = await inTurns(sides, targets, fullDurationMs * scale);
      count += latenciesMs.flat().length;
      await verifyDeposits(world, targets, count);
      const ofRound = latenciesMs.map(median);
      say(
        `  ${round === 0 ? 'warm-up' : `round ${round}`}: ${ofRound.map((ms) => ms.toFixed(3)).join(' and ')} ms`,
      );
      if (round > 0) mediansMs.push(ofRound);
    }
    await world.close();
    const [perAction, grouped] = sides.map((_side, index) =>
      median(mediansMs.map((ms) => ms[index] ?? Number.NaN)),
    );
    if (perAction === undefined || grouped === undefined) throw new Error('A side was not measured');
    return [
      {
        title: 'one client: latency (median), grouped commit ÷ per action',
        value: grouped / perAction,
        unit: '×',
        atMost: 1.05,
        measured: { framework: perAction, 'framework, grouped': grouped },
      },
    ];
  },
};

/** Lets the sides deposit in turn for a while; gives how long each deposit of each side took, in milliseconds. */
async function inTurns(
  sides: readonly DepositSide[],
  targets: readonly DepositTarget[],
  durationMs: number,
): Promise<readonly number[][]> {
  const latenciesMs: number[][] = sides.map(() => []);
  const untilMs = performance.now() + durationMs;
  while (performance.now() < untilMs) {
    for (const [index, { deposit }] of sides.entries()) {
      const startedAtMs = performance.now();
      await deposit(anyOf(targets));
      latenciesMs[index]?.push(performance.now() - startedAtMs);
    }
  }
  return latenciesMs;
}
