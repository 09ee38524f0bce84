import { getEventListeners } from 'node:events';
import { Readable } from 'node:stream';
import { Webhook } from 'standardwebhooks';
import { Dispatcher } from 'undici';
import { beforeEach, describe, expect, test, vi } from 'vitest';

import { messageFor } from '../test/broker-suite.js';
import { unhandledRejections } from '../test/unhandled.js';
import type { Broker, BrokerMessage } from './index.js';
import { type WebhookOptions, webhooks } from './webhooks.js';

const url = 'https://partner.example/events';
const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
const forever = new AbortController().signal;
const statuses = Array.from({ length: 400 }, (_unused, index) => 200 + index);
/** The only answers of status 4xx after which a message is sent again. */
const laterStatuses: ReadonlySet<number> = new Set([401, 403, 404, 405, 407, 408, 410, 421, 423, 425, 429]);

interface SentRequest {
  readonly url: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  readonly signal: AbortSignal;
}

interface Answer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Readable;
}

let sent: SentRequest[];
/** What the partner answers to a request. */
let answer: (request: SentRequest) => Answer | Promise<Answer>;

beforeEach(() => {
  sent = [];
  answer = () => ({ status: 204 });
  vi.spyOn(Dispatcher.prototype, 'request').mockImplementation(async ({ origin, path, ...options }) => {
    const request = { ...options, url: `${String(origin)}${path}` } as unknown as SentRequest;
    sent.push(request);
    const { status, headers = {}, body = '' } = await answer(request);
    const stream = typeof body === 'string' ? Readable.from([Buffer.from(body)]) : body;
    return { statusCode: status, headers, body: stream } as Dispatcher.ResponseData;
  });
});

function open(options: Partial<WebhookOptions> = {}): Broker {
  return webhooks({ url, secret, ...options });
}

/** Sends one message; `again` if it is to be sent once more. */
async function outcomeOf(broker: Broker, message: BrokerMessage = messageFor('t', 'a', 1)): Promise<string> {
  return broker.publish([message], forever).then(
    ([outcome]) => outcome?.kind ?? 'nothing',
    () => 'again',
  );
}

describe('a webhook', () => {
  test('confirms by each 2xx, refuses by each 4xx about the message, and gets it again after all others', async () => {
    const broker = open();
    const outcomes = new Map<number, string>();
    for (const status of statuses) {
      answer = () => ({ status });
      outcomes.set(status, await outcomeOf(broker));
    }
    const statusesOf = (kind: string) => statuses.filter((status) => outcomes.get(status) === kind);
    expect(statusesOf('confirmed')).toEqual(statuses.filter((status) => status < 300));
    expect(statusesOf('refused')).toEqual(
      statuses.filter((status) => status >= 400 && status < 500 && !laterStatuses.has(status)),
    );
    expect(statusesOf('later')).toEqual(
      statuses.filter(
        (status) => (status >= 300 && status < 400) || status >= 500 || laterStatuses.has(status),
      ),
    );
  });

  test.each([301, 302, 303, 307, 308])(
    'follows no redirect of status %i, and sends nothing to the other address',
    async (status) => {
      const broker = open();
      answer = () => ({ status, headers: { location: 'https://elsewhere.example' } });
      expect(await outcomeOf(broker)).toBe('later');
      await broker.ping();
      expect(sent.map(({ url: to }) => to)).toEqual([url, url]);
    },
  );

  test('gets the attributes as headers, the body as it is, and a signature of both', async () => {
    const broker = open({
      headers: { authorization: 'Bearer mellon', 'Webhook-Id': 'forged', 'CE-ID': 'forged' },
    });
    const message = messageFor('t', 'Größe "100 %" 😀', 1, '{"text":"Größe 😀"}');
    await outcomeOf(broker, message);
    const [{ headers, body, method } = {} as SentRequest] = sent;
    expect(method).toBe('POST');
    expect(headers).toMatchObject({
      authorization: 'Bearer mellon',
      'content-type': 'application/json',
      'webhook-id': message.id,
      'ce-id': message.id,
      'ce-subject': 'Gr%C3%B6%C3%9Fe%20%22100%20%25%22%20%F0%9F%98%80',
    });
    expect(headers).not.toHaveProperty('ce-datacontenttype');
    expect(body).toEqual(Buffer.from(message.body));
    expect(new Webhook(secret).verify(body, headers)).toEqual({ text: 'Größe 😀' });
    expect(headers['webhook-timestamp']).toMatch(/^\d{10}$/);
  });

  test('has the content type of the message, if it is another one', async () => {
    const message = messageFor('t', 'a', 1);
    const attributes = { ...message.attributes, datacontenttype: 'text/json' };
    await outcomeOf(open(), { ...message, attributes });
    expect(sent[0]?.headers['content-type']).toBe('text/json');
  });

  test.each([
    [undefined, 8],
    [1, 1],
    [3, 3],
    [20, 10],
  ])('with a concurrency of %s gets %s of ten requests at a time', async (concurrency, atOnce) => {
    const broker = open(concurrency === undefined ? {} : { concurrency });
    let openCount = 0;
    let openMax = 0;
    answer = async () => {
      openMax = Math.max(openMax, ++openCount);
      await new Promise((resolve) => setImmediate(resolve));
      openCount--;
      return { status: 204 };
    };
    const messages = Array.from({ length: 10 }, (_unused, index) => messageFor('t', `m${index}`, 1));
    // As several slots do.
    await Promise.all([messages.slice(0, 5), messages.slice(5)].map((part) => broker.publish(part, forever)));
    expect(openMax).toBe(atOnce);
  });

  test.each([
    ['a number of seconds', '30', 30_000],
    ['a date', new Date(Date.now() + 3_600_000).toUTCString(), 3_600_000],
    ['a date in the past', new Date(0).toUTCString(), 1_000],
    ['no seconds', '0', 1_000],
    ['seconds, and a space behind', '30 ', 30_000],
    ['half a second more', '3000.5', 1_000],
    ['a year alone', 'try 2050', 1_000],
    ['a hundred years', '3153600000', 86_400_000],
    ['a date of another language', 'Mo, 30 Dez 2026 10:00:00 GMT', 1_000],
    ['something else', 'soon', 1_000],
    ['nothing', undefined, 1_000],
  ])('that answers 429, and names %s, is left alone for that long', async (_what, header, ms) => {
    answer = () => ({
      status: 429,
      ...(header !== undefined && { headers: { 'retry-after': header } }),
    });
    const messages = Array.from({ length: 10 }, (_unused, index) => messageFor('t', `m${index}`, 1));
    const outcomes = await open({ concurrency: 1 }).publish(messages, forever);
    expect(sent).toHaveLength(1);
    expect(outcomes.map(({ kind }) => kind)).toEqual([
      'later',
      ...Array.from({ length: 9 }, () => 'held-back'),
    ]);
    const { afterMs = NaN } = outcomes[0] as { readonly afterMs?: number };
    expect(Math.abs(afterMs - ms)).toBeLessThan(2_000);
  });

  test.each([
    ['499 bytes', 'x'.repeat(499), 'x'.repeat(499)],
    ['500 bytes', 'x'.repeat(500), 'x'.repeat(500)],
    ['501 bytes', 'x'.repeat(501), 'x'.repeat(500)],
    ['500 characters of two bytes', 'ü'.repeat(500), 'ü'.repeat(250)],
    ['nothing', '', ''],
  ])('that refuses with %s is quoted up to 500 bytes', async (_size, body, quoted) => {
    answer = () => ({ status: 400, body });
    expect(await open().publish([messageFor('t', 'a', 1)], forever)).toEqual([
      { kind: 'refused', reason: `400 Bad Request: ${quoted}` },
    ]);
  });

  test('that refuses in many parts is read up to 16 kB, and loses its connection then', async () => {
    let readCount = 0;
    const body = new Readable({
      highWaterMark: 0,
      read() {
        readCount++;
        this.push(Buffer.from('ab'.repeat(125)));
      },
    });
    answer = () => ({ status: 400, body });
    expect(await outcomeOf(open())).toBe('refused');
    expect(readCount).toBeLessThanOrEqual(67);
    expect(body.destroyed).toBe(true);
  });

  test('that refuses, and breaks off what it says, refuses all the same', async () => {
    const unhandled = unhandledRejections();
    const body = new Readable({
      read() {
        this.destroy(new Error('reset'));
      },
    });
    answer = () => ({ status: 400, body });
    expect(await open().publish([messageFor('t', 'a', 1)], forever)).toEqual([
      { kind: 'refused', reason: '400 Bad Request: ' },
    ]);
    expect(await unhandled()).toEqual([]);
  });

  test.each([204, 200])(
    'that confirms with status %i and an endless answer is read no further',
    async (status) => {
      const body = new Readable({
        read() {
          this.push(Buffer.alloc(1_000));
        },
      });
      answer = () => ({ status, body });
      expect(await outcomeOf(open())).toBe('confirmed');
      expect(body.destroyed).toBe(true);
    },
  );

  test('that confirms, and is silent then, confirms all the same', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    answer = () => ({ status: 200, body: new Readable({ read: () => undefined }) });
    const outcome = outcomeOf(open());
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await outcome).toBe('confirmed');
    vi.useRealTimers();
  });

  test('may take as long for an answer as its timeout, which each request has for itself', async () => {
    const timeout = vi.spyOn(AbortSignal, 'timeout');
    await outcomeOf(open());
    await outcomeOf(open({ timeoutMs: 123 }));
    expect(timeout.mock.calls).toEqual([[10_000], [123]]);
    expect(open().limits).toEqual({ messagesMax: 100, timeoutMs: 1_000_000 });
  });

  test('gets the attributes in the signed body if it is to be structured', async () => {
    const message = messageFor('t', 'Größe "7"', 1, '{"text":"Größe 😀"}');
    expect(await outcomeOf(open({ structured: true }), message)).toBe('confirmed');
    const [{ headers, body } = {} as SentRequest] = sent;
    expect(Object.keys(headers).filter((name) => name.startsWith('ce-'))).toEqual([]);
    expect(headers['content-type']).toBe('application/cloudevents+json');
    const envelope: unknown = JSON.parse(body.toString());
    expect(envelope).toEqual({ ...message.attributes, data: { text: 'Größe 😀' } });
  });

  test('is given up by the caller, at the end, and after its timeout', async () => {
    const unhandled = unhandledRejections();
    const timeout = new AbortController();
    vi.spyOn(AbortSignal, 'timeout').mockReturnValue(timeout.signal);
    answer = ({ signal }) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      });
    const caller = new AbortController();
    const givenUp = open().publish([messageFor('t', 'a', 1)], caller.signal);
    await vi.waitFor(() => expect(sent).toHaveLength(1));
    caller.abort(new Error('given up'));
    await expect(givenUp).rejects.toThrow('given up');
    const closing = open();
    const closed = closing.publish([messageFor('t', 'a', 1)], forever);
    await vi.waitFor(() => expect(sent).toHaveLength(2));
    await closing.close();
    await expect(closed).rejects.toThrow('closed');
    await expect(closing.publish([messageFor('t', 'a', 1)], forever)).rejects.toThrow('closed');
    expect(sent).toHaveLength(2);
    const silent = open().publish([messageFor('t', 'a', 1)], forever);
    await vi.waitFor(() => expect(sent).toHaveLength(3));
    timeout.abort(new Error('timeout'));
    await expect(silent).rejects.toThrow('timeout');
    expect(await unhandled()).toEqual([]);
  });

  test('holds back what had no turn before the time of its call was over', async () => {
    const broker = open({ concurrency: 1 });
    const answers: (() => void)[] = [];
    answer = () =>
      new Promise((resolve) => {
        answers.push(() => resolve({ status: 204 }));
      });
    const caller = new AbortController();
    const publish = (...ids: string[]) =>
      broker.publish(
        ids.map((id) => messageFor('t', id, 1)),
        caller.signal,
      );
    const calls = [publish('a', 'b', 'c'), publish('d', 'e'), publish('f', 'g'), publish('h')];
    for (let count = 1; count <= 2; count++) {
      await vi.waitFor(() => expect(answers).toHaveLength(count));
      answers[count - 1]?.();
    }
    await vi.waitFor(() => expect(answers).toHaveLength(3));
    caller.abort(new Error('over'));
    const outcomes = await Promise.all(calls);
    expect(sent.map(({ headers }) => headers['ce-subject'])).toEqual(['a', 'd', 'f']);
    expect(outcomes.map((call) => call.map(({ kind }) => kind))).toEqual([
      ['confirmed', 'held-back', 'held-back'],
      ['confirmed', 'held-back'],
      ['later', 'held-back'],
      ['held-back'],
    ]);
  });

  test('that answers nothing until the time is over lets calls without a turn fail, too', async () => {
    const broker = open({ concurrency: 1 });
    answer = () => new Promise(() => undefined);
    const caller = new AbortController();
    const calls = ['a', 'b'].map((id) => broker.publish([messageFor('t', id, 1)], caller.signal));
    await vi.waitFor(() => expect(sent).toHaveLength(1));
    caller.abort(new Error('over'));
    for (const call of calls) await expect(call).rejects.toThrow('over');
    expect(sent).toHaveLength(1);
  });

  test.each([
    [429, 'Too Many Requests'],
    [503, 'Service Unavailable'],
  ])(
    'that answers %i with a time gets no more of the call, not even what waits for its turn',
    async (status, name) => {
      const broker = open({ concurrency: 2 });
      // Takes one of the two turns.
      answer = () => new Promise(() => undefined);
      void broker.publish([messageFor('t', 'silent', 1)], forever);
      await vi.waitFor(() => expect(sent).toHaveLength(1));
      answer = () => ({ status, body: 'no', headers: { 'retry-after': '20' } });
      const outcomes = await broker.publish(
        ['a', 'b', 'c'].map((id) => messageFor('t', id, 1)),
        forever,
      );
      expect(sent).toHaveLength(2);
      expect(outcomes).toMatchObject([
        { kind: 'later', reason: `${status} ${name}: no`, afterMs: 20_000 },
        { kind: 'held-back' },
        { kind: 'held-back' },
      ]);
      // Another call may be for a model to which the time does not apply.
      answer = () => ({ status: 204 });
      expect(await outcomeOf(broker)).toBe('confirmed');
    },
  );

  test('leaves no listener behind at the signal of its caller', async () => {
    const { signal } = new AbortController();
    const broker = open();
    for (let round = 0; round < 50; round++) {
      answer = () => ({ status: round % 2 === 0 ? 204 : 503 });
      await broker.publish([messageFor('t', 'a', round)], signal).catch(() => undefined);
    }
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  test.each([200, 302, 404, 405, 500])('answers a ping by any status, such as %i', async (status) => {
    answer = () => ({ status });
    await open().ping();
    expect(sent).toMatchObject([{ method: 'HEAD', url }]);
  });
});
