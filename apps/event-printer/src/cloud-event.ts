import { type CloudEventV1, HTTP } from 'cloudevents';

/**
 * Reads a message with the CloudEvents SDK. It uses the SDK's binding for HTTP whatever the broker, because each broker's binding
 * marks attributes differently.
 *
 * @param attributes by their names, without a prefix
 * @throws the SDK's error when it is not a CloudEvent
 */
export function cloudEventOf(
  attributes: Readonly<Record<string, string>>,
  body: string,
): CloudEventV1<unknown> {
  const { datacontenttype = 'application/json', ...others } = attributes;
  const headers = Object.entries(others).map(([name, value]) => [`ce-${name}`, value] as const);
  const event = HTTP.toEvent<unknown>({
    headers: { 'content-type': datacontenttype, ...Object.fromEntries(headers) },
    body,
  });
  if (Array.isArray(event)) throw new Error('A message holds one event, not a batch');
  return event;
}

/** The stream or exchange of the wallet service's events. */
export const walletEvents = 'wallet-events';

/** What a reader of a broker calls. */
export interface Reading {
  /** Called once, when it has begun to read. */
  readonly onReading: () => void;
  /** Called with each message, in the order in which the broker has them: its attributes by their names, without a prefix. */
  readonly onMessage: (attributes: Readonly<Record<string, string>>, body: string) => void;
}

/**
 * Reads all events of a broker, and those that follow. It does not connect again: what runs it, such as systemd or Kubernetes, starts
 * it again.
 *
 * @throws Error with the reason when it cannot connect, or its connection has ended
 */
export type Reader = (url: string, reading: Reading) => Promise<never>;
