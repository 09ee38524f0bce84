import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { cpuMsOf } from '../deposits/service-process.js';

/** The bundle of `src/processes/attack.ts`; this file is part of `dist/main.js`. */
const file = fileURLToPath(new URL('processes/attack.js', import.meta.url));

/** What the clients of an attack do. */
export type AttackKind = 'slow' | 'address' | 'principal';

/** The instructions for a process that attacks. */
export interface Attack {
  /** The attacked service. Default: a server in the process of the attack, which refuses every request. */
  readonly url?: string;
  readonly kind: AttackKind;
  /** The path of the deposits that it sends. */
  readonly path: string;
  /** The token of the wallet's owner. */
  readonly token: string;
}

/** What such a process has done so far. */
export interface AttackReport {
  /** How many connections it has opened. */
  readonly connections: number;
  /** How many answers it got, by status. */
  readonly answers: Readonly<Record<string, number>>;
}

/** A separate process whose clients attack the service. */
export class AttackingProcess {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  /** Starts an attack, and waits until all its clients are connected. */
  static async start(attack: Attack): Promise<AttackingProcess> {
    const child = fork(file, [JSON.stringify(attack)]);
    const started = Promise.withResolvers<void>();
    child.once('exit', (code) => started.reject(new Error(`The attacking process ended with ${code}`)));
    child.once('message', () => started.resolve());
    await started.promise;
    return new AttackingProcess(child);
  }

  /** What it has done so far. */
  async report(): Promise<AttackReport> {
    const answered = once(this.#child, 'message');
    this.#child.send('report');
    const [report] = (await answered) as [AttackReport];
    return report;
  }

  /** The processor time that it has used so far, in milliseconds; `NaN` if the system does not say. */
  cpuMs(): Promise<number> {
    return cpuMsOf(this.#child.pid);
  }

  /** Kills the process, which closes its connections. */
  async end(): Promise<void> {
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exited;
  }
}
