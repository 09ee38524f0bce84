import { Webhook } from 'standardwebhooks';

import {
  type Broker,
  type BrokerMessage,
  type PublishOutcome,
  RefusedByBroker,
  publishByKey,
  singlyConfirmedMax,
} from './broker.js';
import { headerValue } from './message.js';

/** How a relay reaches a webhook. */
export interface WebhookOptions {
  /** Receives each message as the body of a POST request. */
  readonly url: string;
  /** Signs the messages: `whsec_` and at least 24 bytes in base64, as Standard Webhooks describes. */
  readonly secret: string;
  /** How long a request may take, in milliseconds. Default 10,000. */
  readonly timeoutMs?: number;
  /** How many requests are sent at the same time, at least 1. Default 8. */
  readonly concurrency?: number;
  /** Further headers, such as `authorization`. */
  readonly headers?: Readonly<Record<string, string>>;
}

const timeoutMsDefault = 10_000;
const concurrencyDefault = 8;
/** Answers of status 4xx that say "later", not "never". */
const laterStatuses: ReadonlySet<number> = new Set([408, 425, 429]);
const reasonLengthMax = 500;

/**
 * A webhook as the broker of a relay: each event is a POST request, signed as Standard Webhooks describes.
 *
 * An answer of status 2xx confirms a message. One of 4xx refuses it, except 408, 425 and 429; after every other answer the
 * message is sent again. Redirects are not followed.
 *
 * @throws Error when the secret is not one of Standard Webhooks, the URL is not an HTTP URL or contains a password, or
 * `concurrency` is not at least 1
 * @see https://www.standardwebhooks.com
 */
export function webhooks(options: WebhookOptions): Broker {
  return new WebhookBroker(options);
}

class WebhookBroker implements Broker {
  readonly limits: { readonly messagesMax: number; readonly timeoutMs: number };
  readonly #options: WebhookOptions;
  readonly #webhook: Webhook;
  readonly #timeoutMs: number;
  readonly #closed = new AbortController();

  constructor(options: WebhookOptions) {
    const { protocol, username, password } = new URL(options.url);
    if (protocol !== 'https:' && protocol !== 'http:')
      throw new Error(`The URL of a webhook must begin with https: or http:, not ${protocol}`);
    // `fetch` would refuse it, too, with an error that shows the password.
    if (username !== '' || password !== '')
      throw new Error(
        'The URL of a webhook must not contain a user name or password: set the authorization header',
      );
    const { concurrency = 1 } = options;
    if (!Number.isInteger(concurrency) || concurrency < 1)
      throw new Error(`The concurrency of a webhook must be a whole number of at least 1, not ${concurrency}`);
    this.#options = options;
    this.#webhook = new Webhook(options.secret);
    this.#timeoutMs = options.timeoutMs ?? timeoutMsDefault;
    this.limits = { messagesMax: singlyConfirmedMax, timeoutMs: singlyConfirmedMax * this.#timeoutMs };
  }

  publish(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const { concurrency = concurrencyDefault } = this.#options;
    const ended = AbortSignal.any([signal, this.#closed.signal]);
    return publishByKey(messages, ended, (message) => this.#post(message, ended), concurrency);
  }

  /** Resolves when anything answers at the URL, whatever the status is: a webhook has no separate URL for checks. */
  async ping(): Promise<void> {
    const answer = await this.#fetch({ method: 'HEAD' }, this.#closed.signal);
    await answer.body?.cancel();
  }

  async close(): Promise<void> {
    this.#closed.abort(new Error('This broker was closed: create a new one'));
  }

  async #post(message: BrokerMessage, signal: AbortSignal): Promise<void> {
    const body = Buffer.from(message.body);
    const sentAt = new Date();
    const headers = {
      ...this.#options.headers,
      ...attributeHeaders(message),
      'webhook-id': message.id,
      'webhook-timestamp': String(Math.floor(sentAt.getTime() / 1_000)),
      'webhook-signature': this.#webhook.sign(message.id, sentAt, body),
    };
    const answer = await this.#fetch({ method: 'POST', headers, body }, signal);
    if (answer.ok) return answer.body?.cancel();
    const text = (await answer.text().catch(() => '')).slice(0, reasonLengthMax);
    const reason = `${answer.status} ${answer.statusText}: ${text}`;
    const { status } = answer;
    if (status >= 400 && status < 500 && !laterStatuses.has(status)) throw new RefusedByBroker(reason);
    throw new Error(`The webhook answered ${reason}`);
  }

  #fetch(request: RequestInit, signal: AbortSignal): Promise<Response> {
    return fetch(this.#options.url, {
      ...request,
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(this.#timeoutMs)]),
    });
  }
}

/** @see https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md */
function attributeHeaders({ attributes }: BrokerMessage): Readonly<Record<string, string>> {
  const { datacontenttype = 'application/json', ...others } = attributes;
  const headers = Object.entries(others).map(([name, value]) => [`ce-${name}`, headerValue(value)] as const);
  return { ...Object.fromEntries(headers), 'content-type': datacontenttype };
}
