import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Session, operations } from './differential/session.js';
import { StorePair } from './differential/store-pair.js';

const seed = Number(process.env['FC_SEED'] ?? 1);
/** As many as meet all cases; more at night, to look for rare ones. */
const count = Number(process.env['DIFFERENTIAL_COUNT'] ?? 40);

const sequences = fc.array(fc.tuple(fc.constantFrom(...operations), fc.nat()), {
  minLength: 1,
  maxLength: 80,
  size: 'max',
});

/** Cases that must occur: comparing only operations without an effect would prove little. */
const expected = [
  'persist: key-taken',
  'persist: written-before',
  'persist: stale-record',
  'restore: some',
  'read: history-changed',
  'findKey: something',
  'findHandlerKeys: some',
  'register: handler-names',
  'retire: handler-in-use',
  'save: some',
  'fail: some',
  'fail: none',
  'hold: some',
  'failHead: none',
  'move: none',
  'models: some',
  'dueHeads: some',
  'readModels: some',
  'mayComeAgain: some',
  'begin: true',
  'begin: false',
];

test(`the in-memory store answers as PostgreSQL does (${count} sequences, seed ${seed})`, async () => {
  const open = await StorePair.opener();
  const met = new Set<string>();
  await fc.assert(
    fc.asyncProperty(sequences, async (sequence) => {
      const session = new Session(await open());
      await session.begin();
      for (const [operation, choices] of sequence) await session.do(operation, choices);
      await session.compare();
      for (const answer of session.met) met.add(answer);
    }),
    { seed, numRuns: count, interruptAfterTimeLimit: 3_000_000, endOnFailure: true },
  );
  expect([...met]).toEqual(expect.arrayContaining(expected));
}, 3_600_000);
