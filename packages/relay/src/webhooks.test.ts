import { getEventListeners } from 'node:events';
import { Webhook } from 'standardwebhooks';
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

interface SentRequest extends RequestInit {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

let sent: SentRequest[];
/** What the partner answers to a request. */
let answer: (request: SentRequest) => Response | Promise<Response>;

beforeEach(() => {
  sent = [];
  answer = () => new Response(null, { status: 204 });
  vi.stubGlobal('fetch', async (to: string, init: Omit<SentRequest, 'url'>) => {
    const request = {
      ...init,
      headers: Object.fromEntries(new Headers(init.headers)),
      url: to,
    } as SentRequest;
    sent.push(request);
    return answer(request);
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

/** A response of any status, which those of the platform limit to some. */
function responseOf(status: number, body: ReadableStream | null = null): Response {
  const response = new Response(body);
  Object.defineProperties(response, {
    status: { value: status },
    ok: { value: status >= 200 && status < 300 },
  });
  return response;
}

describe('a webhook', () => {
  test('confirms by each 2xx, refuses by each 4xx about the message, and gets it again after all others', async () => {
    const broker = open();
    const outcomes = new Map<number, string>();
    for (const status of statuses) {
      answer = () => responseOf(status);
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
      answer = () => new Response(null, { status, headers: { location: 'https://elsewhere.example' } });
      expect(await outcomeOf(broker)).toBe('later');
      await broker.ping();
      expect(sent.map(({ url: to, redirect }) => [to, redirect])).toEqual([
        [url, 'manual'],
        [url, 'manual'],
      ]);
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
    expect(Buffer.from(body as Uint8Array)).toEqual(Buffer.from(message.body));
    expect(new Webhook(secret).verify(body as Buffer, headers)).toEqual({ text: 'Größe 😀' });
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
      return new Response(null, { status: 204 });
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
    answer = () =>
      new Response(null, {
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
    answer = () => new Response(body, { status: 400, statusText: 'Bad Request' });
    expect(await open().publish([messageFor('t', 'a', 1)], forever)).toEqual([
      { kind: 'refused', reason: `400 Bad Request: ${quoted}` },
    ]);
  });

  test('that refuses in many parts is read up to 16 kB, so that its connection takes the next request', async () => {
    let readCount = 0;
    let isCancelled = false;
    const body = new ReadableStream<Uint8Array>(
      {
        pull: (controller) => {
          readCount++;
          controller.enqueue(Buffer.from('ab'.repeat(125)));
        },
        cancel: () => {
          isCancelled = true;
        },
      },
      { highWaterMark: 0 },
    );
    answer = () => new Response(body, { status: 400 });
    expect(await outcomeOf(open())).toBe('refused');
    expect(readCount).toBe(66);
    expect(isCancelled).toBe(true);
  });

  test('that refuses, and breaks off what it says, refuses all the same', async () => {
    const unhandled = unhandledRejections();
    const body = new ReadableStream({ pull: (controller) => controller.error(new Error('reset')) });
    answer = () => new Response(body, { status: 400, statusText: 'Bad Request' });
    expect(await open().publish([messageFor('t', 'a', 1)], forever)).toEqual([
      { kind: 'refused', reason: '400 Bad Request: ' },
    ]);
    expect(await unhandled()).toEqual([]);
  });

  test.each([204, 200])(
    'that confirms with status %i and an endless answer is read no further',
    async (status) => {
      let isCancelled = false;
      const body = new ReadableStream({
        pull: (controller) => controller.enqueue(Buffer.alloc(1_000)),
        cancel: () => {
          isCancelled = true;
        },
      });
      answer = () => (status === 204 ? responseOf(204, body) : new Response(body));
      expect(await outcomeOf(open())).toBe('confirmed');
      expect(isCancelled).toBe(true);
    },
  );

  test('that confirms, and is silent then, confirms all the same', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    answer = () => new Response(new ReadableStream({ pull: () => new Promise(() => undefined) }));
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
    const { headers = {}, body = '' } = sent[0] ?? {};
    expect(Object.keys(headers).filter((name) => name.startsWith('ce-'))).toEqual([]);
    expect(headers['content-type']).toBe('application/cloudevents+json');
    const envelope: unknown = await new Response(body).json();
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
        answers.push(() => resolve(new Response(null, { status: 204 })));
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

  test.each([429, 503])(
    'that answers %i with a time gets no more of the call, not even what waits for its turn',
    async (status) => {
      const broker = open({ concurrency: 2 });
      // Takes one of the two turns.
      answer = () => new Promise(() => undefined);
      void broker.publish([messageFor('t', 'silent', 1)], forever);
      await vi.waitFor(() => expect(sent).toHaveLength(1));
      answer = () => new Response('no', { status, statusText: 'Busy', headers: { 'retry-after': '20' } });
      const outcomes = await broker.publish(
        ['a', 'b', 'c'].map((id) => messageFor('t', id, 1)),
        forever,
      );
      expect(sent).toHaveLength(2);
      expect(outcomes).toMatchObject([
        { kind: 'later', reason: `${status} Busy: no`, afterMs: 20_000 },
        { kind: 'held-back' },
        { kind: 'held-back' },
      ]);
      // Another call may be for a model to which the time does not apply.
      answer = () => new Response(null, { status: 204 });
      expect(await outcomeOf(broker)).toBe('confirmed');
    },
  );

  test('leaves no listener behind at the signal of its caller', async () => {
    const { signal } = new AbortController();
    const broker = open();
    for (let round = 0; round < 50; round++) {
      answer = () => new Response(null, { status: round % 2 === 0 ? 204 : 503 });
      await broker.publish([messageFor('t', 'a', round)], signal).catch(() => undefined);
    }
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  test.each([200, 302, 404, 405, 500])('answers a ping by any status, such as %i', async (status) => {
    answer = () => new Response(null, { status });
    await open().ping();
    expect(sent).toMatchObject([{ method: 'HEAD', url }]);
  });
});
