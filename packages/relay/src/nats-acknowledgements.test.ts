import {
  type MsgHdrs,
  type NatsConnection,
  PermissionViolationError,
  headers,
} from '@nats-io/transport-node';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { unhandledRejections } from '../test/unhandled.js';
import { NatsAcknowledgements } from './nats-acknowledgements.js';

const timeoutMs = 5_000;
/** How often it looks for answers that are overdue. */
const checkMs = 500;
const body = new TextEncoder().encode('{}');
const stored = { stream: 'events', seq: 1 };

interface Answer {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly headers?: Pick<MsgHdrs, 'code'>;
}

/** A connection that keeps what is published, and whose answers a test sends. */
class ScriptedConnection {
  readonly published: { readonly subject: string; readonly reply: string }[] = [];
  readonly subscriptions: string[] = [];
  /** What the client throws for the next messages. */
  refusal: Error | undefined;
  #callback: (error: Error | null, answer: Answer) => void = () => undefined;
  readonly #statuses: string[] = [];
  #wake = Promise.withResolvers<void>();
  #isClosed = false;

  asConnection(): NatsConnection {
    return this as unknown as NatsConnection;
  }

  subscribe(subject: string, { callback }: { readonly callback: ScriptedConnection['answer'] }): void {
    this.subscriptions.push(subject);
    this.#callback = callback as never;
  }

  publish(subject: string, _body: Uint8Array, { reply }: { readonly reply: string }): void {
    if (this.refusal !== undefined) throw this.refusal;
    this.published.push({ subject, reply });
  }

  async *status(): AsyncGenerator<{ readonly type: string }> {
    for (;;) {
      for (let type = this.#statuses.shift(); type !== undefined; type = this.#statuses.shift())
        yield { type };
      if (this.#isClosed) return;
      await this.#wake.promise;
      this.#wake = Promise.withResolvers();
    }
  }

  /** The answer to the message that was published as this one, from 0. */
  answer(index: number, content: unknown, code?: number): void {
    const text = typeof content === 'string' ? content : JSON.stringify(content);
    const reply = this.published[index]?.reply ?? 'nothing';
    const answered = { subject: reply, data: new TextEncoder().encode(text) };
    this.#callback(null, code === undefined ? answered : { ...answered, headers: { code } });
  }

  fail(error: Error): void {
    this.#callback(error, { subject: this.published[0]?.reply ?? '', data: new Uint8Array() });
  }

  async become(...types: readonly string[]): Promise<void> {
    this.#statuses.push(...types);
    this.#wake.resolve();
    await vi.advanceTimersByTimeAsync(0);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.become();
  }
}

let connection: ScriptedConnection;
let acknowledgements: NatsAcknowledgements;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  connection = new ScriptedConnection();
  acknowledgements = new NatsAcknowledgements(connection.asConnection(), { timeoutMs });
});
afterEach(() => {
  vi.useRealTimers();
});

/** Publishes a message; how its answer ends is `stored`, an error, or `waiting` so far. */
function publish(subject = 'events.Changed'): { outcome: unknown } {
  const message: { outcome: unknown } = { outcome: 'waiting' };
  acknowledgements.publish(subject, body, headers()).then(
    () => (message.outcome = 'stored'),
    (error: unknown) => (message.outcome = error),
  );
  return message;
}

const settle = (): Promise<unknown> => vi.advanceTimersByTimeAsync(0);

describe('the acknowledgements of NATS', () => {
  test('belong each to its own message, in whatever order they arrive', async () => {
    const messages = [publish(), publish(), publish()];
    connection.answer(2, stored);
    connection.answer(0, { error: { err_code: 10_054, description: 'too large' } });
    await settle();
    expect(messages.map(({ outcome }) => outcome)).toEqual([
      expect.objectContaining({ name: 'NatsRefusal', code: 10_054, message: 'too large' }),
      'waiting',
      'stored',
    ]);
    const replies = connection.published.map(({ reply }) => reply);
    expect(new Set(replies).size).toBe(3);
    const [pattern = ''] = connection.subscriptions;
    expect(replies.every((reply) => reply.startsWith(pattern.replace('*', '')))).toBe(true);
  });

  test('have a subject of their own on each connection', () => {
    const other = new ScriptedConnection();
    void new NatsAcknowledgements(other.asConnection(), { timeoutMs });
    expect(other.subscriptions).not.toEqual(connection.subscriptions);
  });

  test.each<readonly [string, unknown, number | undefined, object]>([
    ['no stream that takes it', '', 503, { name: 'NatsRefusal', code: 503 }],
    [
      'an error without a code',
      { error: { description: 'no' } },
      undefined,
      { name: 'NatsRefusal', code: 0 },
    ],
    [
      'an error without words',
      { error: { err_code: 1 } },
      undefined,
      { name: 'NatsRefusal', message: 'refused' },
    ],
    ['an error beside a place', { ...stored, error: { err_code: 7 } }, undefined, { code: 7 }],
    ['a place without a number', { stream: 'events' }, undefined, { name: 'Error' }],
    ['a number without a place', { seq: 1 }, undefined, { name: 'Error' }],
    ['a number as text', { stream: 'events', seq: '1' }, undefined, { name: 'Error' }],
    ['nothing', '', undefined, { name: 'Error' }],
    ['no JSON', 'stored', undefined, { name: 'Error' }],
    ['null', 'null', undefined, { name: 'Error' }],
    ['a number', '5', undefined, { name: 'Error' }],
  ])('store nothing if the answer is %s', async (_what, content, code, error) => {
    const message = publish();
    connection.answer(0, content, code);
    await settle();
    expect(message.outcome).toMatchObject(error);
  });

  test.each([stored, { ...stored, seq: 0 }, { ...stored, error: null }, { ...stored, duplicate: true }])(
    'say that a message is stored by %j',
    async (content) => {
      const message = publish();
      connection.answer(0, content);
      await settle();
      expect(message.outcome).toBe('stored');
    },
  );

  test('may take up to their timeout, and those of later messages as long again', async () => {
    const early = publish();
    await vi.advanceTimersByTimeAsync(1);
    const late = publish();
    await vi.advanceTimersByTimeAsync(timeoutMs - 2);
    expect(early.outcome).toBe('waiting');
    // At the check that is exactly one timeout after the first message.
    await vi.advanceTimersByTimeAsync(1);
    expect(early.outcome).toBeInstanceOf(Error);
    expect(late.outcome).toBe('waiting');
    await vi.advanceTimersByTimeAsync(checkMs);
    expect(late.outcome).toBeInstanceOf(Error);
  });

  test('of one moment are overdue at the same moment', async () => {
    const messages = [publish(), publish(), publish()];
    await vi.advanceTimersByTimeAsync(timeoutMs);
    expect(messages.filter(({ outcome }) => outcome instanceof Error)).toHaveLength(3);
  });

  test('are looked for more often if their timeout is shorter than the time between two checks', async () => {
    acknowledgements = new NatsAcknowledgements(connection.asConnection(), { timeoutMs: 20 });
    const message = publish();
    await vi.advanceTimersByTimeAsync(19);
    expect(message.outcome).toBe('waiting');
    await vi.advanceTimersByTimeAsync(1);
    expect(message.outcome).toMatchObject({ message: expect.stringContaining('20 ms') as string });
  });

  test('that come too late, twice, or for nothing are ignored', async () => {
    const message = publish();
    await vi.advanceTimersByTimeAsync(timeoutMs);
    expect(message.outcome).toBeInstanceOf(Error);
    connection.answer(0, stored);
    connection.answer(1, stored);
    const next = publish();
    connection.answer(1, stored);
    connection.answer(1, { error: { err_code: 1 } });
    await settle();
    expect(next.outcome).toBe('stored');
  });

  test('are awaited on although the client reports an error of the subscription', async () => {
    const message = publish();
    connection.fail(new Error('no permission'));
    await settle();
    expect(message.outcome).toBe('waiting');
    connection.answer(0, stored);
    await settle();
    expect(message.outcome).toBe('stored');
  });

  test('are given up, and nothing more is published, when the user may not subscribe to them', async () => {
    const message = publish();
    const denial = new PermissionViolationError('not allowed', 'subscription', '_INBOX.x');
    connection.fail(denial);
    await settle();
    const later = publish();
    await settle();
    for (const { outcome } of [message, later])
      expect(outcome).toMatchObject({ code: 403, message: 'not allowed' });
    expect(connection.published).toHaveLength(1);
  });

  test('are not awaited for a message that the client refuses', async () => {
    const unhandled = unhandledRejections();
    connection.refusal = new Error('too long');
    const refused = publish();
    await settle();
    expect(refused.outcome).toBe(connection.refusal);
    connection.refusal = undefined;
    const next = publish();
    await vi.advanceTimersByTimeAsync(timeoutMs);
    expect(next.outcome).toMatchObject({ message: expect.stringContaining('did not answer') as string });
    expect(await unhandled()).toEqual([]);
  });

  test('are given up when the connection is lost, but not those of messages after that', async () => {
    const lost = [publish(), publish()];
    await connection.become('disconnect');
    expect(lost.map(({ outcome }) => outcome instanceof Error)).toEqual([true, true]);
    const next = publish();
    await connection.become('reconnect', 'update');
    expect(next.outcome).toBe('waiting');
    connection.answer(0, stored);
    connection.answer(2, stored);
    await settle();
    expect(next.outcome).toBe('stored');
    const again = publish();
    await connection.become('disconnect');
    expect(again.outcome).toBeInstanceOf(Error);
  });

  test('are remembered only as long as their messages wait, however these end', async () => {
    const set = vi.spyOn(Map.prototype, 'set');
    publish();
    const [waiting] = set.mock.contexts as readonly Map<unknown, unknown>[];
    expect(waiting?.size).toBe(1);
    for (const answer of [stored, { error: { err_code: 1 } }, 'no JSON']) {
      connection.answer(connection.published.length - 1, answer);
      expect(waiting?.size).toBe(0);
      publish();
    }
    await vi.advanceTimersByTimeAsync(timeoutMs);
    expect(waiting?.size).toBe(0);
    publish();
    await connection.become('disconnect');
    expect(waiting?.size).toBe(0);
    connection.refusal = new Error('too long');
    publish();
    expect(waiting?.size).toBe(0);
    connection.refusal = undefined;
    publish();
    await connection.close();
    expect(waiting?.size).toBe(0);
  });

  test('are given up when the connection is closed, which leaves no timer behind', async () => {
    const message = publish();
    expect(vi.getTimerCount()).toBe(1);
    await connection.close();
    expect(message.outcome).toBeInstanceOf(Error);
    expect(vi.getTimerCount()).toBe(0);
  });
});
