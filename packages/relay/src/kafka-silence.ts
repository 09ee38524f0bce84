import { type Broker, type ConnectionOptions, ConnectionPool, apiVersionsV3 } from '@platformatic/kafka';
import { setTimeout as delay } from 'node:timers/promises';

import { endConnections, guard } from './kafka-connection.js';

/** Distinguishes servers that are silent from those that only take long for a request. */
export class SilentServers {
  readonly #pool: ConnectionPool;
  readonly #silent = new Set<string>();
  readonly #probes = new Map<string, Promise<boolean>>();

  constructor(clientId: string, options: ConnectionOptions) {
    this.#pool = new ConnectionPool(clientId, options);
    this.#pool.on('connecting', ({ connection }) => guard(connection));
  }

  /**
   * Does something that waits for a server. If that takes long, or the server was silent last time, a question on another connection
   * shows whether the server is there, because each connection answers one request after the other.
   *
   * @throws Error when the server is silent, although the work may still end, and what the work throws
   */
  async unlessSilent<T>(server: Broker, work: () => Promise<T>): Promise<T> {
    if (this.#silent.has(nameOf(server))) await this.#assertAnswers(server);
    const ended = new AbortController();
    const watch = async (): Promise<never> => {
      for (;;) {
        await delay(longMs, undefined, { signal: ended.signal });
        await this.#assertAnswers(server);
      }
    };
    try {
      return await Promise.race([work(), watch()]);
    } finally {
      ended.abort();
    }
  }

  /** Disconnects. */
  async end(): Promise<void> {
    await endConnections(this.#pool, () => this.#pool.close());
  }

  async #assertAnswers(server: Broker): Promise<void> {
    const soon = new AbortController();
    const late = delay(soonMs, false, { signal: soon.signal });
    const isThere = await Promise.race([this.#probe(server), late]).finally(() => soon.abort());
    if (isThere) return;
    this.#silent.add(nameOf(server));
    throw new Error(`The server ${nameOf(server)} of Kafka does not answer`);
  }

  /** Asks a server for something, once at a time. The answer may come after the caller has gone. */
  #probe(server: Broker): Promise<boolean> {
    const name = nameOf(server);
    const probe = async (): Promise<boolean> => {
      try {
        await apiVersionsV3.api.async(await this.#pool.get(server), 'framework-relay', '1');
        this.#silent.delete(name);
        return true;
      } catch {
        return false;
      } finally {
        this.#probes.delete(name);
      }
    };
    const probing = this.#probes.get(name) ?? probe();
    this.#probes.set(name, probing);
    return probing;
  }
}

/** After how long it is found out whether a server is there. */
const longMs = 1_000;
/** How long a server may take to answer then. */
const soonMs = 500;

function nameOf({ host, port }: Broker): string {
  return `${host}:${port}`;
}
