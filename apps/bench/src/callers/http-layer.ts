import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Pool } from 'undici';
import type { Benchmark } from '../benchmark/benchmark.js';
import { measureContenders } from '../benchmark/measure-contenders.js';
import { runLoad } from '../load/run-load.js';

/** The bundle of `src/processes/serve-http.ts`; this file is part of `dist/main.js`. */
const file = fileURLToPath(new URL('processes/serve-http.js', import.meta.url));

const clientCount = 16;
/** About as many requests as a service of deposits has: a process that is busier spends less on each, because clients need not be woken. */
const steadyPerSecond = 3_000;
const fullDurationMs = 5_000;
const id = '0197ab3e-9d5c-7c00-8000-000000000001';

/** What the HTTP layer costs, compared with a route of Hono that validates the same body with zod. */
export const httpLayer: Benchmark = {
  name: 'http-layer',
  async run(context) {
    const servers = [await HttpProcess.start('bare'), await HttpProcess.start('api')] as const;
    try {
      const durationMs = fullDurationMs * context.scale;
      const cpuUsAt = (perSecondMax: number) =>
        measureContenders(
          servers.map((server) => ({
            name: server.name,
            measure: () => server.cpuUs(durationMs, perSecondMax),
          })),
          context,
        );
      const steady = await cpuUsAt(steadyPerSecond);
      const busy = await cpuUsAt(Infinity);
      return [
        {
          title: `CPU of the server per request, HttpApi ÷ Hono with zod, µs, ${steadyPerSecond} requests/s`,
          value: steady.api / steady.bare,
          unit: '×',
          atMost: 1.5,
          measured: steady,
        },
        {
          title: 'the same with as many requests as it can answer, 16 clients',
          value: busy.api / busy.bare,
          unit: '×',
          measured: busy,
        },
      ];
    } finally {
      for (const server of servers) await server.stop();
    }
  },
};

/** A server in a process of its own, and its clients. */
class HttpProcess {
  readonly name: 'bare' | 'api';
  readonly #child: ChildProcess;
  readonly #pool: Pool;

  private constructor(name: 'bare' | 'api', child: ChildProcess, port: number) {
    this.name = name;
    this.#child = child;
    this.#pool = new Pool(`http://127.0.0.1:${port}`, { connections: clientCount });
  }

  static async start(name: 'bare' | 'api'): Promise<HttpProcess> {
    const child = fork(file, [name]);
    const [{ port }] = (await once(child, 'message')) as [{ readonly port: number }];
    return new HttpProcess(name, child, port);
  }

  /**
   * The processor time of the server per request, in microseconds.
   *
   * @throws Error when a deposit is not answered with its result
   */
  async cpuUs(durationMs: number, perSecondMax: number): Promise<number> {
    const before = await this.#cpuMs();
    const { count } = await runLoad(() => this.#deposit(), { clientCount, durationMs, perSecondMax });
    return (((await this.#cpuMs()) - before) / count) * 1_000;
  }

  async stop(): Promise<void> {
    await this.#pool.close();
    this.#child.kill();
    await once(this.#child, 'exit');
  }

  async #deposit(): Promise<void> {
    const { statusCode, body } = await this.#pool.request({
      method: 'POST',
      path: `/wallets/${id}/deposit`,
      headers: { 'content-type': 'application/json' },
      body: '{"amount":"25.50"}',
    });
    const text = await body.text();
    if (statusCode !== 200 || !text.includes('"balance":"25.5"')) throw new Error(`${statusCode}: ${text}`);
  }

  async #cpuMs(): Promise<number> {
    const answered = once(this.#child, 'message');
    this.#child.send('cpu');
    const [{ cpuMs }] = (await answered) as [{ readonly cpuMs: number }];
    return cpuMs;
  }
}
