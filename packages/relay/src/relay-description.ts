import type { FrameworkConfig } from '@framework/core';

import { defined } from './relay-credentials.js';
import { kindNames, kinds, relaySchema } from './relay-sections.js';

/** What `asyncApiDocument` says about the relays of a service. */
export interface RelayDescription {
  /** Absent when the relays have different ones. */
  readonly protocol?: 'nats' | 'amqp' | 'kafka' | 'redis' | 'http';
  /** The exchange of RabbitMQ. */
  readonly exchange?: string;
  /** The template of the subjects, routing keys, topics or streams; absent when it is that of the broker's default. */
  readonly address?: string;
  /** By the names of the relays. */
  readonly servers?: Readonly<
    Record<string, Readonly<{ host: string; protocol: string; pathname?: string }>>
  >;
}

/**
 * Describes the relays of a configuration file, the section `framework.relay`, for `asyncApiDocument`. Users, passwords, and the
 * receivers of webhooks are left out, and relays that `openRelays` refuses.
 *
 * @returns the servers by the names of their relays, and the protocol, exchange and address if they are the same for all relays
 */
export function describeRelays({ relay: sections }: Pick<FrameworkConfig, 'relay'>): RelayDescription {
  const described = sections.flatMap((section) => {
    const { data } = relaySchema.safeParse(section);
    const broker = kindNames.find((each) => data?.[each] !== undefined);
    if (data === undefined || broker === undefined) return [];
    return [{ name: data.name, ...kinds[broker].describe(data[broker]) }];
  });
  const keys = new Set<string>();
  const servers = described.flatMap(({ name, servers: urls }) =>
    urls.flatMap((url) => {
      const [server] = serverOf(url);
      if (server === undefined) return [];
      const plain = name.replaceAll(/[^\w-]/g, '_');
      let key = plain;
      for (let count = 2; keys.has(key); count++) key = `${plain}-${count}`;
      keys.add(key);
      return [[key, server] as const];
    }),
  );
  const [first, ...others] = described.map(({ protocol, exchange, address }) => ({
    protocol,
    exchange,
    address,
  }));
  const isOne = others.every((other) => JSON.stringify(other) === JSON.stringify(first));
  return {
    ...(isOne && first && defined(first)),
    ...(servers.length > 0 && { servers: Object.fromEntries(servers) }),
  };
}

/** A server without its user, password and parameters; none when a part of a password could be taken for the host. */
function serverOf(address: string) {
  const url = URL.parse(address);
  // An @ behind the host may be of a password that is not encoded.
  if (url === null || url.host === '' || (url.pathname + url.search + url.hash).includes('@')) return [];
  const { host, protocol, pathname } = url;
  return [{ host, protocol: protocol.slice(0, -1), ...(pathname.length > 1 && { pathname }) }];
}
