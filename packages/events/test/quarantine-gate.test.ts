import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { QuarantineGate } from '../src/subscription/quarantine.js';
import { gate } from './delivery-bench.js';

const aloneMs = 1_000;

/** Attempts that a test ends by their names, and what was recorded of each, in order. */
function attempts() {
  const clock = new VirtualClock();
  const quarantine = new QuarantineGate(clock);
  const noted: string[] = [];
  const ends = new Map<string, () => void>();
  const work = (name: string) => async (alone?: AbortSignal) => {
    noted.push(alone === undefined || alone.aborted ? `${name} beside` : `${name} alone`);
    alone?.addEventListener('abort', () => noted.push(`${name} alone no more`));
    const { opened, open } = gate();
    ends.set(name, open);
    await opened;
    if (name.startsWith('bad')) throw new Error(name);
  };
  return {
    clock,
    noted,
    beside: (name: string) => quarantine.runBeside(work(name)),
    alone: (name: string) => quarantine.runAlone(work(name), aloneMs),
    end: async (name: string) => {
      ends.get(name)!();
      await clock.advance(0);
    },
  };
}

describe('an attempt that must be alone', () => {
  test('waits until the running ones have ended, and others wait for it', async () => {
    const { clock, noted, beside, alone, end } = attempts();
    void beside('a');
    void beside('b');
    void alone('suspect');
    void beside('c');
    await clock.advance(aloneMs - 1);
    await end('a');
    expect(noted).toEqual(['a beside', 'b beside']);
    await end('b');
    expect(noted.slice(2)).toEqual(['suspect alone']);
    await end('suspect');
    expect(noted.slice(3)).toEqual(['suspect alone no more', 'c beside']);
    expect(clock.sleeperCount).toBe(0);
  });

  test('is not alone when the running ones do not end in time', async () => {
    const { clock, noted, beside, alone, end } = attempts();
    void beside('slow');
    void alone('suspect');
    void beside('a');
    await clock.advance(aloneMs);
    expect(noted).toEqual(['slow beside', 'suspect beside', 'a beside']);
    void alone('other');
    await end('slow');
    await end('suspect');
    await end('a');
    expect(noted.slice(3)).toEqual(['other alone']);
  });

  test('keeps others out only for a limited time', async () => {
    const { clock, noted, beside, alone } = attempts();
    void alone('suspect');
    void beside('a');
    await clock.advance(aloneMs - 1);
    expect(noted).toEqual(['suspect alone']);
    await clock.advance(1);
    expect(noted).toEqual(['suspect alone', 'suspect alone no more', 'a beside']);
  });

  test('takes turns with others that must be alone, and lets the rest run in between', async () => {
    const { clock, noted, beside, alone, end } = attempts();
    void alone('one');
    void alone('two');
    void beside('a');
    await clock.advance(0);
    expect(noted).toEqual(['one alone']);
    await end('one');
    expect(noted.slice(1)).toEqual(['one alone no more', 'a beside']);
    await end('a');
    expect(noted.slice(3)).toEqual(['two alone']);
    await end('two');
    void alone('three');
    await clock.advance(0);
    expect(noted.slice(4)).toEqual(['two alone no more', 'three alone']);
  });

  test('no longer keeps others out once it has failed, which is reported to its caller', async () => {
    const { clock, noted, beside, alone, end } = attempts();
    const failures: unknown[] = [];
    void alone('bad').catch((error: unknown) => failures.push(error));
    void beside('a');
    await clock.advance(0);
    await end('bad');
    expect(failures).toMatchObject([{ message: 'bad' }]);
    expect(noted).toEqual(['bad alone', 'bad alone no more', 'a beside']);
  });
});

test('an attempt that failed does not keep out one that must be alone', async () => {
  const { clock, noted, beside, alone, end } = attempts();
  const failures: unknown[] = [];
  void beside('bad').catch((error: unknown) => failures.push(error));
  void alone('suspect');
  await clock.advance(0);
  await end('bad');
  expect(failures).toMatchObject([{ message: 'bad' }]);
  expect(noted).toEqual(['bad beside', 'suspect alone']);
});
