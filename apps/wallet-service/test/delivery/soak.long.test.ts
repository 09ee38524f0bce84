import { type ChildProcess, fork } from 'node:child_process';
import { Console } from 'node:console';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setInterval, setTimeout as delay } from 'node:timers/promises';
import { FaultProxy, seededRandom } from '@framework/testing';
import { createTestDatabase } from '@framework/testing/postgres';
import { expect, onTestFinished, test, vi } from 'vitest';
import { bundledProgram } from './bundle-program.js';
import { SoakJournal, type Stream } from './soak-journal.js';
import type { Conditions } from './soak-worker.js';

// Delivery under a steady load, with one random fault after the other. SOAK_MINUTES says for how long (default 3), and SOAK_SEED
// repeats the faults of an earlier run.
const minutes = Number(process.env['SOAK_MINUTES'] ?? 3);
const seed = Number(process.env['SOAK_SEED'] ?? Date.now() % 2 ** 31);

const workerCount = 3;
const handlers = ['throws an error', 'asks to wait'];
const calmMs = 15_000;
/** How soon after a fault delivery must have recovered, and below which lag it stays from then on. */
const recoveryMaxMs = 10_000;
const lagMaxMs = 1_000;
/** Often, and not in step with the load. */
const sampleIntervalMs = 97;
const samplesMin = 15;
const hourMs = 3_600_000;
const healthy: Conditions = { isDown: false, clockErrorMs: 0 };
/** Faults in which no process loses a lease, so that nothing is handled again. */
const withoutRepeats: ReadonlySet<string> = new Set(['handlers fail', 'clocks jump']);
/** Those that hold up nothing. */
const withoutLag: ReadonlySet<string> = new Set(['workers start', 'clocks jump']);

interface Worker {
  readonly name: string;
  readonly process: ChildProcess;
}

/** A fault, and the calm after it. */
interface Episode {
  readonly fault: string;
  endMs: number;
  repeatCount: number;
  lastRepeatMs: number;
  /** The lags of each stream and handler; before the end of the fault, `afterMs` is negative. */
  readonly samples: { readonly afterMs: number; readonly lags: readonly (readonly number[])[] }[];
}

test(
  `delivery recovers from random faults, loses nothing and keeps the order (seed ${seed})`,
  { timeout: (minutes + 3) * 60_000, retry: 0 },
  async () => {
    const random = seededRandom(seed);
    const oneOf = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)]!;
    const pause = (minMs: number, maxMs: number) => delay(minMs + random() * (maxMs - minMs));

    const databases = await Promise.all([createTestDatabase(), createTestDatabase()]);
    onTestFinished(async () => void (await Promise.all(databases.map((database) => database.drop()))));
    const proxies = await Promise.all(databases.map(({ host, port }) => FaultProxy.to({ host, port })));
    onTestFinished(async () => void (await Promise.all(proxies.map((proxy) => proxy.close()))));
    const folder = await mkdtemp(join(tmpdir(), 'soak-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const file = join(folder, 'handled');
    await writeFile(file, '');
    const urls = databases.map(({ url, port }, n) => url.replace(`:${port}/`, `:${proxies[n]!.port}/`));
    const program = await bundledProgram('soak');
    let startCount = 0;
    const start = (): Worker => {
      const name = `worker ${++startCount}`;
      const env = { SOAK_WORKER: name, SOAK_FILE: file, SOAK_URLS: JSON.stringify(urls) };
      return { name, process: fork(program, { execArgv: [], env }) };
    };
    const workers = Array.from({ length: workerCount }, start);
    onTestFinished(() => workers.forEach((worker) => worker.process.kill('SIGKILL')));
    await Promise.all(workers.map((worker) => once(worker.process, 'message')));

    const [first, second] = databases.map(({ url }) => url) as [string, string];
    const others = Array.from({ length: 200 }, (_unused, n) => `other-${n}`);
    const streams: readonly Stream[] = [
      { name: 'hot', url: first, modelIds: ['hot'], eventsPerSecond: 300 },
      { name: 'others of shard 0', url: first, modelIds: others.slice(0, 100), eventsPerSecond: 50 },
      { name: 'others of shard 1', url: second, modelIds: others.slice(100), eventsPerSecond: 50 },
    ];
    const episodes: Episode[] = [];
    const journal = new SoakJournal(file, handlers, streams, () => {
      const episode = episodes.at(-1)!;
      episode.repeatCount++;
      episode.lastRepeatMs = performance.now();
    });
    onTestFinished(() => journal.close());

    /** Each begins a fault, and resolves at its end. */
    const faults: Readonly<Record<string, () => Promise<unknown>>> = {
      'worker killed': async () => {
        const killed = oneOf(workers);
        killed.process.kill('SIGKILL');
        workers[workers.indexOf(killed)] = start();
      },
      'worker stopped': async () => {
        const stopped = oneOf(workers);
        stopped.process.kill('SIGSTOP');
        await pause(2_000, 8_000);
        journal.continues(stopped.name);
        stopped.process.kill('SIGCONT');
      },
      'handlers fail': async () => {
        impose(workers, { ...healthy, isDown: true });
        await pause(5_000, 10_000);
        impose(workers, healthy);
      },
      'shard refuses': async () => {
        const proxy = oneOf(proxies);
        await proxy.refuse();
        await pause(3_000, 10_000);
        await proxy.accept();
      },
      'shard is silent': async () => {
        const proxy = oneOf(proxies);
        proxy.silence();
        await pause(3_000, 10_000);
        proxy.resume();
      },
      'clocks jump': async () => {
        const affected = oneOf([workers, [oneOf(workers)]]);
        impose(affected, { ...healthy, clockErrorMs: oneOf([-hourMs, hourMs]) });
        await pause(3_000, 10_000);
        impose(affected, healthy);
      },
    };

    const over = new AbortController();
    const sample = async (): Promise<void> => {
      for await (const now of setInterval(sampleIntervalMs, () => performance.now())) {
        if (over.signal.aborted) break;
        journal.read();
        const lags = streams.map((stream) => handlers.map((handler) => journal.lagMs(handler, stream)));
        const { samples, endMs } = episodes.at(-1)!;
        samples.push({ afterMs: now() - endMs, lags });
      }
    };
    const load = streams.map((stream, n) => journal.write(stream, seededRandom(seed + n), over.signal));
    const running = Promise.allSettled([...load, sample()]);
    onTestFinished(async () => {
      over.abort();
      await running;
    });
    const pass = async (fault: string, work: () => Promise<unknown>): Promise<void> => {
      const episode: Episode = {
        fault,
        endMs: Infinity,
        repeatCount: 0,
        lastRepeatMs: -Infinity,
        samples: [],
      };
      episodes.push(episode);
      await work();
      episode.endMs = performance.now();
      await delay(calmMs);
      const ended = workers.filter(
        ({ process: { exitCode, signalCode } }) => (exitCode ?? signalCode) !== null,
      );
      expect(ended.map(({ name }) => name)).toEqual([]);
    };
    const endMs = performance.now() + minutes * 60_000;
    await pass('workers start', async () => undefined);
    // All of them in a random order, and so on.
    for (let rest: string[] = []; performance.now() < endMs;) {
      if (rest.length === 0) rest = Object.keys(faults);
      const [fault] = rest.splice(rest.indexOf(oneOf(rest)), 1);
      await pass(fault!, faults[fault!]!);
    }
    over.abort();
    expect((await running).filter(({ status }) => status === 'rejected')).toEqual([]);
    report(episodes);
    process.stdout.write(`${journal.committedCount} events in ${minutes} min, seed ${seed}\n`);

    const isEverythingHandled = (): boolean => {
      journal.read();
      return journal.waitingCount === 0;
    };
    // If something is lost, the rest is of interest as well.
    await vi.waitUntil(isEverythingHandled, recoveryMaxMs).catch(() => undefined);
    const result = {
      lostCount: journal.waitingCount,
      violations: journal.violations.slice(0, 20),
      shortcomings: episodes.flatMap(shortcomings),
    };
    expect(result).toEqual({ lostCount: 0, violations: [], shortcomings: [] });
  },
);

function impose(workers: readonly Worker[], conditions: Conditions): void {
  for (const worker of workers) worker.process.send(conditions);
}

/** What is not as it must be after a fault. */
function shortcomings({ fault, samples, endMs, repeatCount, lastRepeatMs }: Episode): readonly string[] {
  const calm = samples.filter(({ afterMs }) => afterMs > recoveryMaxMs);
  const lagMs = greatestLagMs(calm);
  const isFelt = greatestLagMs(samples) > lagMaxMs || withoutLag.has(fault);
  const repeatedMs = lastRepeatMs - endMs;
  return [
    ...(isFelt ? [] : [`${fault}: it has held up nothing, so nothing was tested`]),
    ...(calm.length < samplesMin ? [`${fault}: the lag was measured only ${calm.length} times`] : []),
    ...(lagMs < lagMaxMs ? [] : [`${fault}: the lag is ${lagMs} ms long after its end`]),
    ...(repeatedMs < recoveryMaxMs ? [] : [`${fault}: events are repeated ${repeatedMs} ms after its end`]),
    ...(repeatCount > 0 && withoutRepeats.has(fault) ? [`${fault}: ${repeatCount} events are repeated`] : []),
  ];
}

/** @param streams the first stream that counts, and the one after the last. Default: all */
function greatestLagMs(
  samples: Episode['samples'],
  ...streams: readonly [first?: number, end?: number]
): number {
  return samples.reduce((most, { lags }) => Math.max(most, ...lags.slice(...streams).flat()), 0);
}

/** Prints how delivery has recovered, for each kind of fault. */
function report(episodes: readonly Episode[]): void {
  const rows = [...Map.groupBy(episodes, ({ fault }) => fault)].map(([fault, own]) => {
    const samples = own.flatMap((episode) => episode.samples);
    const calm = samples.filter(({ afterMs }) => afterMs > recoveryMaxMs);
    /** The longest time after which the lag was still too great. */
    const recoveryMs = (handler: number): number =>
      Math.max(
        0,
        ...own.map((episode) => {
          const late = episode.samples.findLast(({ lags }) => lags.some((lag) => lag[handler]! >= lagMaxMs));
          return late?.afterMs ?? 0;
        }),
      );
    return {
      fault,
      times: own.length,
      repeats: own.reduce((sum, { repeatCount }) => sum + repeatCount, 0),
      'greatest lag (s)': rounded(greatestLagMs(samples) / 1_000),
      ...Object.fromEntries(
        handlers.map((name, n) => [`recovery, ${name} (s)`, rounded(recoveryMs(n) / 1_000)]),
      ),
      'calm lag, hot (ms)': rounded(greatestLagMs(calm, 0, 1)),
      'calm lag, others (ms)': rounded(greatestLagMs(calm, 1)),
    };
  });
  new Console(process.stdout).table(rows);
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}
