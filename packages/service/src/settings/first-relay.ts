import type { FrameworkConfig } from '@framework/core';
import { unescape } from 'node:querystring';

type Section = Readonly<Record<string, unknown>>;

/** Makes the section of a relay that creates what it needs in the broker, by the protocol of the broker's URL. */
const sections: Readonly<Record<string, (url: string, name: string) => Section>> = {
  'nats:': (url, stream) => ({ nats: { ...natsServer(new URL(url)), stream, createStream: true } }),
  'amqp:': (url, exchange) => ({ rabbitmq: { url, exchange, declare: true } }),
  // A user stays in it: relays refuse one, which is better than to connect without.
  'kafka:': (url, topic) => ({
    kafka: { bootstrapServers: [url.replaceAll(/^kafka:\/\/|\/$/gi, '')], topic, createTopics: true },
  }),
  'redis:': (url, stream) => ({ redis: { url, stream } }),
};

/** The beginnings of the URLs that {@link firstRelay} accepts. */
export const brokerProtocols: readonly string[] = Object.keys(sections).map((protocol) => `${protocol}//`);

/** Whether a text is the URL of a broker that {@link firstRelay} accepts. */
export function isBroker(url: string): boolean {
  return sections[URL.parse(url)?.protocol ?? ''] !== undefined;
}

/**
 * The section of a relay to a broker, for a first trial.
 *
 * @param name of the stream, exchange or topic that it creates
 */
export function firstRelay(url: string, name: string): FrameworkConfig['relay'][number] {
  const section = sections[new URL(url).protocol]?.(url, name) ?? {};
  return { name: `events-to-${Object.keys(section).join()}`, startFrom: 'beginning', ...section };
}

/** A server of NATS, whose client takes users and passwords apart from URLs. */
function natsServer({ protocol, host, username, password }: URL): Section {
  const servers = [`${protocol}//${host}`];
  if (username === '') return { servers };
  const user = unescape(username);
  // A user alone is a token.
  return password === ''
    ? { servers, token: user }
    : { servers, username: user, password: unescape(password) };
}
