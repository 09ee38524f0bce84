import { once } from 'node:events';
import { connect } from 'node:net';
import type { Broker, BrokerMessage } from '@framework/relay';

/** How many messages the bare client has in flight at once: as many as a relay publishes in a batch. */
const batchMax = 1_000;

/** A broker with which a relay is measured, and its bare client: its client library alone, which publishes the same bytes. */
export interface BenchBroker {
  readonly name: string;
  /** Its server: that of the environment variable, otherwise that of this machine. */
  readonly server: URL;
  /** The bound for events per second from the log. */
  readonly perSecondMin: number;
  /** Creates a place for messages, such as a stream. */
  readonly open: () => Promise<BenchPlace>;
}

/** A separate stream or queue for one measurement. */
interface BenchPlace {
  readonly broker: Broker;
  /** The topic of the messages that the relay publishes here. */
  readonly topic: string;
  /** Publishes with the bare client, in order, batch by batch; the broker confirms each message as it does for the relay. */
  readonly publishBare: (messages: readonly BrokerMessage[]) => Promise<void>;
  /** How many messages it holds. */
  readonly count: () => Promise<number>;
  /** Removes it with its messages, and disconnects. */
  readonly remove: () => Promise<void>;
}

/** The server of a broker: the one that the environment names, otherwise that of the standard port. */
export function serverOf(variable: string, url: string): URL {
  const named = process.env[variable] ?? url;
  return new URL(named.includes('://') ? named : `${new URL(url).protocol}//${named}`);
}

/** Whether something accepts connections at the host and port of a URL. */
export async function answers({ hostname, port }: URL): Promise<boolean> {
  const socket = connect({ host: hostname, port: Number(port) });
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** Messages in batches of the size in which a relay publishes. */
export function* batches(messages: readonly BrokerMessage[]): Generator<readonly BrokerMessage[]> {
  for (let first = 0; first < messages.length; first += batchMax)
    yield messages.slice(first, first + batchMax);
}
