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

/** Where messages are read from, and what is done with each, in the order in which the broker has them. */
export interface Reading {
  readonly url: string;
  /** The stream or exchange. */
  readonly place: string;
  /** The namespace of the service, with which the subjects in NATS begin. */
  readonly namespace: string;
  /** Is given the attributes by their names, without a prefix; must not throw. */
  readonly onMessage: (attributes: Readonly<Record<string, string>>, body: string) => void;
  /** Is given errors after which reading continues. */
  readonly onError: (error: Error) => void;
}
