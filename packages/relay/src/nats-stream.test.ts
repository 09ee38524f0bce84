import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import { expect, test } from 'vitest';

import { NatsStream } from './nats-stream.js';

const limits = { created: '1', config: { name: 's', retention: 'limits' } } as StreamInfo;
const interest = { created: '2', config: { name: 's', retention: 'interest' } } as StreamInfo;

/** A stream, and the questions about its settings that a test is to answer. */
function openStream(): { stream: NatsStream; questions: PromiseWithResolvers<StreamInfo>[] } {
  const questions: PromiseWithResolvers<StreamInfo>[] = [];
  const info = (): Promise<StreamInfo> => {
    questions.push(Promise.withResolvers());
    return questions.at(-1)?.promise ?? Promise.reject(new Error('not asked'));
  };
  const manager = { streams: { info } } as unknown as JetStreamManager;
  const options = { servers: [], name: 's', createWith: undefined, warn: () => undefined };
  return { stream: new NatsStream(manager, options), questions };
}

test('a stream of NATS is looked at once for all who wait, and again for who comes while that is under way', async () => {
  const { stream, questions } = openStream();
  const reading = stream.terms();
  questions[0]?.resolve(limits);
  const terms = await reading;
  const first = [stream.keeps(terms), stream.keeps(terms)];
  await expect.poll(() => questions.length).toBe(2);
  const second = [stream.keeps(terms), stream.keeps(terms)];
  questions[1]?.resolve(limits);
  expect(await Promise.all(first)).toEqual([true, true]);
  await expect.poll(() => questions.length).toBe(3);
  questions[2]?.resolve(interest);
  expect(await Promise.all(second)).toEqual([false, false]);
  expect(questions).toHaveLength(3);
});

test('a stream of NATS is looked at again after a look that has failed', async () => {
  const { stream, questions } = openStream();
  const reading = stream.terms();
  questions[0]?.resolve(limits);
  const terms = await reading;
  const failing = stream.keeps(terms);
  await expect.poll(() => questions.length).toBe(2);
  const waiting = stream.keeps(terms);
  questions[1]?.reject(new Error('no answer'));
  await expect(failing).rejects.toThrow('no answer');
  await expect.poll(() => questions.length).toBe(3);
  questions[2]?.resolve(limits);
  expect(await waiting).toBe(true);
});
