import { type Broker, type ConnectionOptions, ConnectionPool, apiVersionsV3 } from '@platformatic/kafka';
import { setTimeout as delay } from 'node:timers/promises';

import { endConnections, guard } from './kafka-connection.js';

/** What is known of a server. */
interface Heard {
  /** When anything has arrived from it last, on any connection. */
  lastMs: number;
  /** How long it has taken to answer a question, if it has answered one since it was silent. */
  answerMs: number;
  isSilent: boolean;
  probe: Promise<boolean> | undefined;
}

/** Distinguishes servers that are silent from those that only take long for a request. */
export class SilentServers {
  readonly #pool: ConnectionPool;
  readonly #servers = new Map<string, Heard>();

  constructor(clientId: string, options: ConnectionOptions) {
    this.#pool = new ConnectionPool(clientId, options);
    this.#pool.on('connecting', ({ broker, connection }) => guard(connection, () => this.hear(broker)));
  }

  /** Notes that something has arrived from a server. */
  hear(server: Broker): void {
    const heard = this.#heardFrom(server);
    heard.lastMs = performance.now();
    heard.isSilent = false;
  }

  /**
   * Does something that waits for a server. If nothing arrives from it for long, or the server was silent last time, a question on
   * another connection shows whether the server is there, because each connection answers one request after the other.
   *
   * @throws Error when the server is silent, although the work may still end, and what the work throws
   */
  async unlessSilent<T>(server: Broker, work: () => Promise<T>): Promise<T> {
    const heard = this.#heardFrom(server);
    if (heard.isSilent) await this.#assertAnswers(server, soonMs);
    const begunMs = performance.now();
    const ended = new AbortController();
    const watch = async (): Promise<never> => {
      for (;;) {
        const restMs = Math.max(begunMs, heard.lastMs) + longMs - performance.now();
        if (restMs > 0) await delay(restMs, undefined, { signal: ended.signal });
        // A server that was slow may still be.
        else await this.#assertAnswers(server, Math.max(soonMs, 2 * heard.answerMs));
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

  async #assertAnswers(server: Broker, patienceMs: number): Promise<void> {
    const heard = this.#heardFrom(server);
    const begunMs = performance.now();
    const soon = new AbortController();
    const late = delay(patienceMs, false, { signal: soon.signal });
    const isThere = await Promise.race([this.#probe(server), late]).finally(() => soon.abort());
    if (isThere || heard.lastMs > begunMs) return;
    heard.isSilent = true;
    heard.answerMs = 0;
    throw new Error(`The server ${nameOf(server)} of Kafka does not answer`);
  }

  /** Asks a server for something, once at a time. The answer may come after the caller has gone. */
  #probe(server: Broker): Promise<boolean> {
    const heard = this.#heardFrom(server);
    const probe = async (): Promise<boolean> => {
      const begunMs = performance.now();
      try {
        await apiVersionsV3.api.async(await this.#pool.get(server), 'framework-relay', '1');
        this.hear(server);
        heard.answerMs = performance.now() - begunMs;
        return true;
      } catch {
        return false;
      } finally {
        heard.probe = undefined;
      }
    };
    return (heard.probe ??= probe());
  }

  #heardFrom(server: Broker): Heard {
    const name = nameOf(server);
    const heard = this.#servers.get(name) ?? {
      lastMs: -Infinity,
      answerMs: 0,
      isSilent: false,
      probe: undefined,
    };
    this.#servers.set(name, heard);
    return heard;
  }
}

/** After how long without a sign of a server it is found out whether it is there. */
const longMs = 1_000;
/** How long a server may take to answer then, unless it has shown that it is slower. */
const soonMs = 500;

function nameOf({ host, port }: Broker): string {
  return `${host}:${port}`;
}
