import { readFile, rm, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ServiceProcess } from '../deposits/service-process.js';
import type { BenchIssuer } from './bench-issuer.js';

/** What stands between a request and its action. Tokens come with the policies of actions, which need to know the caller. */
export interface Guards {
  readonly tokens?: boolean;
  readonly limits?: boolean;
  readonly audit?: boolean;
}

const noRates = { perAddress: false, perPrincipal: false } as const;
/** Counts each address, also that of this computer, but refuses none. */
const highRates = { perAddress: { requests: 1_000_000, seconds: 1 }, unlimitedAddresses: [] } as const;

/** A service in a separate process, with some of its guards. */
export class GuardedService {
  readonly process: ServiceProcess;
  readonly #directory: string;

  private constructor(process: ServiceProcess, directory: string) {
    this.process = process;
    this.#directory = directory;
  }

  static async start(
    urls: readonly string[],
    issuer: BenchIssuer,
    { tokens = false, limits = false, audit = false }: Guards,
  ): Promise<GuardedService> {
    const directory = await mkdtemp(join(tmpdir(), 'bench-audit-'));
    const process = await ServiceProcess.start(urls, 'http', {
      security: {
        ...(tokens && issuer.security),
        ...(audit && { audit: { file: join(directory, 'audit.log'), hashChain: true } }),
      },
      http: { limits: limits ? highRates : noRates },
    });
    return new GuardedService(process, directory);
  }

  /** How many writes the audit log records as successful. */
  async auditedCount(): Promise<number> {
    const lines = await readFile(join(this.#directory, 'audit.log'), 'utf8');
    return lines.split('\n').filter((line) => line.includes('"status":200,')).length;
  }

  async stop(): Promise<void> {
    await this.process.stop();
    await rm(this.#directory, { recursive: true, force: true });
  }
}
