import { availableParallelism, loadavg } from 'node:os';
import { expect, inject, test } from 'vitest';
import { faults } from './faults.js';
import { type FaultMeasurement, measureFault } from './measure-fault.js';

declare module 'vitest' {
  interface ProvidedContext {
    readonly faultDrill: { readonly names: readonly string[]; readonly withinS: number };
  }
}

const { names, withinS } = inject('faultDrill');
/** The longest wait for recovery: several times the limit, so that the drill can measure by how much it is exceeded. */
const patienceMs = Math.max(60, 3 * withinS) * 1_000;

test.each(faults.filter(({ name }) => names.includes(name)))('$name', async (fault) => {
  say(`\n${fault.name}: ${fault.what}`);
  try {
    const measured = await measureFault(fault, patienceMs);
    for (const line of linesOf(measured)) say(`  ${line}`);
    if (measured.wrong !== undefined) throw measured.wrong;
    const late = Object.entries(measured.healedAfterS).filter(
      ([, seconds]) => (seconds ?? Infinity) > withinS,
    );
    expect(
      late.map(([what]) => what),
      `well within ${withinS} s`,
    ).toEqual([]);
  } catch (error) {
    say(`  FAILED     ${error instanceof Error ? error.message : String(error)}`);
    throw error;
  }
});

function linesOf({ readiness, answer, log, answers, healedAfterS }: FaultMeasurement): readonly string[] {
  const healing = Object.entries(healedAfterS).map(
    ([what, seconds]) => `${what} ${seconds === undefined ? 'never' : `${seconds.toFixed(1)} s`}`,
  );
  const traffic = Object.entries(answers).map(([what, count]) => `${count} × ${what}`);
  return [
    `readiness  ${readiness}`,
    `a deposit  ${answer}`,
    ...log.map((line) => `log        ${line}`),
    `traffic    ${traffic.join(', ')}`,
    `healed     ${healing.join(', ')}`,
    `machine    load ${loadavg()[0]!.toFixed(1)} on ${availableParallelism()} processors`,
  ];
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
