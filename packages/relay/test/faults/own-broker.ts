import { setTimeout as delay } from 'node:timers/promises';

import type { ArrivedMessage } from './arrivals.js';
import type { OwnServer } from './own-server.js';

const pauseMs = 100;

/**
 * A broker with a server of the test's own, and a consumer that has only the broker's plain client.
 *
 * A further one is a file such as `own-nats.ts`, and a test file such as `nats-faults.ci.test.ts`.
 */
export interface OwnBroker {
  readonly name: string;
  /** Where its server accepts connections, at 127.0.0.1. */
  readonly port: number;
  /** Whether it drops a message that was published before, so that no consumer sees the repeat. */
  readonly dropsRepeats: boolean;
  /** What the configuration of a relay says about it. */
  readonly section: object;
  /** The same for a relay that reaches it at another port, such as that of a proxy, and waits less long for its answers. */
  sectionAt(port: number, timeoutMs: number): object;
  /** Creates what the messages go to: called once, after the first start. */
  prepare(): Promise<void>;
  /** Starts the server, at first or again, on the same port and data. */
  start(): Promise<void>;
  stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<void>;
  /** What can be wrong with the broker although its server runs. */
  readonly troubles: readonly Trouble[];
  /** Begins to read every message, also after the server was away, until the broker is ended. */
  consume(onArrived: (message: ArrivedMessage) => void): void;
  /** Stops the consumer and the servers, and removes their folders. */
  end(): Promise<void>;
}

/** A state in which a broker takes nothing, such as a full disk. */
export interface Trouble {
  readonly name: string;
  readonly begin: () => Promise<unknown>;
  readonly end: () => Promise<unknown>;
}

/** What the configuration of a relay says about a broker for whose answers it may wait so long. */
export function sectionOf(broker: OwnBroker, answerMaxMs: number | undefined): object {
  return answerMaxMs === undefined ? broker.section : broker.sectionAt(broker.port, answerMaxMs);
}

/** What differs between brokers. */
export interface BrokerProtocol {
  readonly name: string;
  readonly dropsRepeats: boolean;
  /** @param further options of the section */
  section(port: number, further: { readonly timeoutMs?: number }): object;
  prepare(): Promise<void>;
  /** Default: none. */
  readonly troubles?: readonly Trouble[];
  /** Reads on one connection, until it is lost or the signal is aborted. */
  read(onArrived: (message: ArrivedMessage) => void, over: AbortSignal): Promise<void>;
}

/**
 * Makes a broker of its servers and its protocol.
 *
 * @param server what is stopped and started again
 * @param beside servers that it needs, which run all the time
 */
export function ownBroker(
  server: OwnServer,
  protocol: BrokerProtocol,
  beside: readonly OwnServer[] = [],
): OwnBroker {
  const over = new AbortController();
  let reading: Promise<void> = Promise.resolve();
  const readAgainAndAgain = async (onArrived: (message: ArrivedMessage) => void): Promise<void> => {
    while (!over.signal.aborted) {
      // Whatever ended the connection, the next one goes on.
      await protocol.read(onArrived, over.signal).catch(() => undefined);
      await delay(pauseMs, undefined, { signal: over.signal }).catch(() => undefined);
    }
  };
  let isFirst = true;
  return {
    name: protocol.name,
    port: server.port,
    dropsRepeats: protocol.dropsRepeats,
    section: protocol.section(server.port, {}),
    sectionAt: (port, timeoutMs) => protocol.section(port, { timeoutMs }),
    prepare: () => protocol.prepare(),
    troubles: protocol.troubles ?? [],
    async start() {
      if (isFirst) for (const each of beside) await each.start();
      isFirst = false;
      await server.start();
    },
    stop: (signal) => server.stop(signal),
    consume: (onArrived) => {
      reading = readAgainAndAgain(onArrived);
    },
    async end() {
      over.abort();
      await server.stop('SIGKILL');
      await reading;
      for (const each of [server, ...beside]) await each.end();
    },
  };
}
