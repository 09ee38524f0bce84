import { STATUS_CODES, validateHeaderName, validateHeaderValue } from 'node:http';
import type { Readable } from 'node:stream';
import pLimit, { type LimitFunction } from 'p-limit';
import { Webhook } from 'standardwebhooks';
import { Agent, type Dispatcher, Pool, ProxyAgent } from 'undici';

import {
  type Broker,
  type BrokerMessage,
  NotTakenByBroker,
  type PublishOutcome,
  RefusedByBroker,
  publishByKey,
  singlyConfirmedLimits,
  unanswered,
} from './broker.js';
import { headerValue } from './message.js';
import { askedMaxMs } from './target-health.js';

/** How a relay reaches a webhook. */
export interface WebhookOptions {
  /** Receives each message as the body of a POST request. */
  readonly url: string;
  /**
   * Signs the messages: `whsec_` and at least 24 bytes in base64, as Standard Webhooks describes. With several, each signs every message, so that
   * the endpoint can change from one to the other.
   */
  readonly secret: string | readonly string[];
  /** How long a request may take, in milliseconds. Default 10,000. */
  readonly timeoutMs?: number;
  /** How many requests are sent at the same time, at least 1. Default 8. */
  readonly concurrency?: number;
  /**
   * Whether the attributes are in the body, as CloudEvents in structured mode, so that the signature covers them. Otherwise they are headers,
   * which it does not cover: whoever can change a request on its way can change these. Default false.
   */
  readonly structured?: boolean;
  /** Further headers, such as `authorization`. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The authorities that certify the endpoint, and a certificate of the relay with its key, in PEM. Default: the authorities of Node. */
  readonly tls?: { readonly ca?: string; readonly cert?: string; readonly key?: string };
  /** The proxy through which the endpoint is reached, such as `http://proxy.example:3128`. Default: none. */
  readonly proxy?: string;
}

const timeoutMsDefault = 10_000;
const concurrencyDefault = 8;
/** Answers of status 4xx that say something of the endpoint or of this time, not of the message. */
const laterStatuses: ReadonlySet<number> = new Set([401, 403, 404, 405, 407, 408, 410, 421, 423, 425, 429]);
/** How much of an answer is read, so that its connection can be used again, and for how long. */
const answerBytesMax = 16_384;
const answerMs = 1_000;
/** How long an endpoint is left alone at least that answers 429. */
const limitedMs = 1_000;
const secretBytesMin = 24;
/** How many bytes of an answer are quoted, to say why a message was not taken. */
const reasonBytesMax = 500;
const heldBack: PublishOutcome = { kind: 'held-back' };

/**
 * A webhook as the broker of a relay: each event is a POST request, signed as Standard Webhooks describes.
 *
 * An answer of status 2xx confirms a message. One of 4xx refuses it, except 401, 403, 404, 405, 407, 408, 410, 421, 423, 425 and 429: after
 * these and all other answers the message is sent again, not before the time that `Retry-After` names. Redirects are not followed.
 *
 * @throws Error when a secret is not one of Standard Webhooks, the URL is not an HTTP URL or contains a password, the proxy is not an HTTP URL, a
 * header cannot be sent, or `concurrency` is not at least 1
 * @see https://www.standardwebhooks.com
 */
export function webhooks(options: WebhookOptions): Broker {
  return new WebhookBroker(options);
}

class WebhookBroker implements Broker {
  readonly limits: { readonly messagesMax: number; readonly timeoutMs: number };
  readonly #options: WebhookOptions;
  readonly #endpoint: Pick<Dispatcher.RequestOptions, 'origin' | 'path'>;
  /** The configured headers, by name in lower case: names that differ only in case are one name. */
  readonly #headers: Readonly<Record<string, string>>;
  readonly #webhooks: readonly Webhook[];
  readonly #limit: LimitFunction;
  readonly #timeoutMs: number;
  readonly #closed = new AbortController();
  /** When the endpoint has answered last, whatever it was. */
  #answeredMs = -Infinity;
  readonly #dispatcher: Dispatcher;

  constructor(options: WebhookOptions) {
    const { protocol, username, password, origin, pathname, search } = new URL(options.url);
    if (protocol !== 'https:' && protocol !== 'http:')
      throw new Error(`The URL of a webhook must begin with https: or http:, not ${protocol}`);
    // The client sends no user name or password from a URL.
    if (username !== '' || password !== '')
      throw new Error(
        'The URL of a webhook must not contain a user name or password: set the authorization header',
      );
    const { concurrency = concurrencyDefault } = options;
    if (!Number.isInteger(concurrency) || concurrency < 1)
      throw new Error(
        `The concurrency of a webhook must be a whole number of at least 1, not ${concurrency}`,
      );
    if (options.proxy !== undefined && !/^https?:$/.test(URL.parse(options.proxy)?.protocol ?? ''))
      throw new Error('The proxy of a webhook must be a URL that begins with http:// or https://');
    const secrets = [options.secret].flat();
    if (secrets.length === 0) throw new Error('A webhook needs at least one secret');
    this.#options = options;
    this.#endpoint = { origin, path: `${pathname}${search}` };
    this.#headers = checkedHeaders(options.headers);
    if (!secrets.every(isSecret))
      throw new Error(
        'A secret of a webhook is whsec_ and at least 24 bytes in base64, as Standard Webhooks says',
      );
    this.#webhooks = secrets.map((secret) => new Webhook(secret));
    this.#limit = pLimit(concurrency);
    this.#timeoutMs = options.timeoutMs ?? timeoutMsDefault;
    this.limits = singlyConfirmedLimits(this.#timeoutMs);
    this.#dispatcher = dispatcherOf(options, this.#timeoutMs);
  }

  async publish(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const ended = AbortSignal.any([signal, this.#closed.signal]);
    const begunMs = performance.now();
    const unsent = new Set(messages);
    let asked: NotTakenByBroker | undefined;
    // Several slots publish at the same time.
    const publishOne = (message: BrokerMessage): Promise<void> =>
      this.#limit(async () => {
        ended.throwIfAborted();
        // An answer to this call has asked for time since the message began to wait for its turn.
        if (asked !== undefined) throw asked;
        unsent.delete(message);
        try {
          await this.#post(message, ended);
        } catch (error) {
          if (error instanceof NotTakenByBroker && error.afterMs !== undefined) asked ??= error;
          throw error;
        }
      });
    const { concurrency } = this.#limit;
    const outcomes = await publishByKey(messages, ended, publishOne, { concurrency }).catch(
      (error: unknown) => {
        // If the time was over while the endpoint answered other calls, what had no turn shows nothing of it.
        if (!signal.aborted || unsent.size === 0 || this.#answeredMs < begunMs) throw error;
        return messages.map(() => unanswered);
      },
    );
    return outcomes.map((outcome, index) => {
      const message = messages[index];
      return message !== undefined && unsent.has(message) ? heldBack : outcome;
    });
  }

  /** Resolves when anything answers at the URL, whatever the status is: a webhook has no separate URL for checks. */
  async ping(): Promise<void> {
    const { body } = await this.#request({ method: 'HEAD' }, this.#closed.signal);
    await beginningOf(body);
  }

  async close(): Promise<void> {
    this.#closed.abort(new Error('This broker was closed: create a new one'));
    await this.#dispatcher.destroy();
  }

  async #post(message: BrokerMessage, signal: AbortSignal): Promise<void> {
    const { structured = false } = this.#options;
    const body = structured ? structuredBody(message) : Buffer.from(message.body);
    const sentAt = new Date();
    const signatures = this.#webhooks.map((webhook) => webhook.sign(message.id, sentAt, body));
    const headers = {
      ...this.#headers,
      ...(structured ? { 'content-type': 'application/cloudevents+json' } : attributeHeaders(message)),
      'webhook-id': message.id,
      'webhook-timestamp': String(Math.floor(sentAt.getTime() / 1_000)),
      'webhook-signature': signatures.join(' '),
    };
    const answer = await this.#request({ method: 'POST', headers, body }, signal);
    this.#answeredMs = performance.now();
    const { statusCode: status } = answer;
    const quoted = (await beginningOf(answer.body)).subarray(0, reasonBytesMax);
    if (status >= 200 && status < 300) return;
    const reason = `${status} ${STATUS_CODES[status] ?? ''}: ${new TextDecoder().decode(quoted)}`;
    if (status >= 400 && status < 500 && !laterStatuses.has(status)) throw new RefusedByBroker(reason);
    const askedMs = retryAfterMs(answer.headers['retry-after']);
    const afterMs = status === 429 ? Math.max(limitedMs, askedMs ?? 0) : askedMs;
    throw new NotTakenByBroker(reason, afterMs);
  }

  /** Sends a request, and follows no redirect. */
  #request(
    options: Pick<Dispatcher.RequestOptions, 'method' | 'headers' | 'body'>,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    return this.#dispatcher.request({
      ...this.#endpoint,
      ...options,
      signal: AbortSignal.any([signal, AbortSignal.timeout(this.#timeoutMs)]),
    });
  }
}

/** By name in lower case. Node's checks do not show the value, which may be a secret. */
function checkedHeaders(headers: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> {
  const checked = Object.entries(headers).map(([name, value]) => {
    validateHeaderName(name);
    validateHeaderValue(name, value);
    return [name.toLowerCase(), value] as const;
  });
  return Object.fromEntries(checked);
}

function isSecret(secret: string): boolean {
  const [, encoded = ''] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(secret) ?? [];
  return Buffer.from(encoded, 'base64').byteLength >= secretBytesMin;
}

/** The connections of a webhook: a connection has one request at a time. */
function dispatcherOf({ tls, proxy }: Pick<WebhookOptions, 'tls' | 'proxy'>, timeout: number): Dispatcher {
  const connect = { ...tls, timeout };
  if (proxy === undefined) return new Agent({ connect, allowH2: false });
  return new ProxyAgent({
    uri: proxy,
    requestTls: connect,
    proxyTls: { timeout },
    allowH2: false,
    // All requests wait for the tunnel, and the end of one does not end it.
    clientFactory: (origin, options) => new Pool(origin, { ...options, headersTimeout: timeout }),
  });
}

/** The beginning of an answer, which may be endless, and may come slowly or break off: its status is what counts. */
async function beginningOf(body: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let byteCount = 0;
  const timer = setTimeout(() => body.destroy(), answerMs);
  // A body that the loop leaves before its end emits an error after the loop.
  body.on('error', () => undefined);
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      byteCount += chunk.byteLength;
      // The connection of an answer that was read to its end takes the next request.
      if (byteCount >= answerBytesMax) break;
    }
  } catch {
    // What was read until then is enough.
  } finally {
    clearTimeout(timer);
  }
  return Buffer.concat(chunks);
}

/**
 * The wait that a header `Retry-After` names, in milliseconds, up to a day: a number of seconds, or a date.
 *
 * @see https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
 */
function retryAfterMs(header: string | string[] | undefined): number | undefined {
  const given = [header].flat().at(0)?.trim() ?? '';
  if (/^\d+$/.test(given)) return Math.min(askedMaxMs, Number(given) * 1_000);
  // Node reads nearly everything as a date.
  if (!/^[A-Z][a-z]+, \d{2}[ -][A-Z][a-z]{2}[ -]\d{2,4} \d{2}:\d{2}:\d{2} GMT$/.test(given)) return undefined;
  const dateMs = Date.parse(given);
  return Number.isNaN(dateMs) ? undefined : Math.min(askedMaxMs, Math.max(0, dateMs - Date.now()));
}

/** @see https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md */
function attributeHeaders({ attributes }: BrokerMessage): Readonly<Record<string, string>> {
  const { datacontenttype = 'application/json', ...others } = attributes;
  const headers = Object.entries(others).map(([name, value]) => [`ce-${name}`, headerValue(value)] as const);
  return { ...Object.fromEntries(headers), 'content-type': datacontenttype };
}

/**
 * The attributes with the payload as it is, so that its bytes are the same each time.
 *
 * @see https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
 */
function structuredBody({ attributes, body }: BrokerMessage): Buffer {
  const beginning = JSON.stringify(attributes).slice(0, -1);
  return Buffer.concat([Buffer.from(`${beginning},"data":`), body, Buffer.from('}')]);
}
