import { describe, expect, test } from 'vitest';

import type { Consumer, ConsumerPlace, Snapshot } from './answers.js';
import { alertsOf } from './alerts.js';

const calm: ConsumerPlace = {
  shards: ['0/0'],
  paused: false,
  pendingCount: 0,
  oldestPendingMs: 0,
  blockedCount: 0,
  blockedIsLowerBound: false,
  deadCount: 0,
  deadIsLowerBound: false,
  processes: [],
  freeSlotCount: 0,
};

function consumer(changes: Partial<ConsumerPlace>, isRelay = false): Consumer {
  const databases = [
    { ...calm, ...changes },
    { ...calm, shards: ['1/0'] },
  ];
  return { handler: 'notify', names: ['notify'], isRelay, databases };
}

function snapshotOf(items: readonly Consumer[], changes: Partial<Snapshot> = {}): Snapshot {
  return {
    date: '2026-01-01T00:00:00.000Z',
    consumers: { items, failures: [] },
    deadLetters: { items: [], failures: [], next: undefined },
    shards: { items: [], failures: [] },
    ...changes,
  };
}

const group = {
  handler: 'notify',
  errorLine: 'mailbox full',
  count: 10_000,
  isLowerBound: true,
  exampleEventId: 'an-event',
  oldestDate: '2026-01-01T00:00:00.000Z',
  shards: ['0/0'],
};

describe('the overview', () => {
  test('finds nothing wrong where nothing is', () => {
    expect(alertsOf(snapshotOf([consumer({ pendingCount: 5, oldestPendingMs: 60_000 })]))).toEqual([]);
  });

  test.each<[string, Partial<ConsumerPlace>, string]>([
    ['a paused handler', { paused: true, oldestPendingMs: 90_000 }, 'notify is paused'],
    ['a handler that lags', { oldestPendingMs: 61_000 }, 'notify lags by 61 s'],
    [
      'blocked events that are no dead letters',
      { blockedCount: 3, deadCount: 1 },
      '2 blocked events of notify',
    ],
    [
      'more blocked events than were counted',
      { blockedCount: 10_000, blockedIsLowerBound: true },
      'at least 10,000 blocked events of notify',
    ],
    ['slots without a process', { freeSlotCount: 16 }, 'Nobody works for notify'],
  ])('names %s, and only that', (_name, changes, what) => {
    const found = alertsOf(snapshotOf([consumer(changes)]));
    expect(found).toMatchObject([{ tone: 'warn', what }]);
  });

  test('counts blocked events of one database although another has dead letters that no cursor has passed', () => {
    const { databases, ...rest } = consumer({ blockedCount: 2 });
    const items = [{ ...rest, databases: [...databases, { ...calm, shards: ['2/0'], deadCount: 3 }] }];
    expect(alertsOf(snapshotOf(items))).toMatchObject([{ what: '2 blocked events of notify' }]);
  });

  test('puts databases that do not answer first, each once, and then dead letters', () => {
    const failures = [{ shards: ['1/0'], code: 'shard-unavailable' }];
    const found = alertsOf(
      snapshotOf([consumer({ paused: true })], {
        shards: { items: [], failures },
        deadLetters: { items: [group], failures, next: undefined },
      }),
    );
    expect(found.map(({ what }) => what)).toEqual([
      'Shard 1/0 does not answer',
      'at least 10,000 dead letters of notify',
      'notify is paused',
    ]);
    expect(found[1]?.href).toBe('#/dead-letters?handler=notify&errorLine=mailbox+full');
  });

  test('leads to the relays for a relay', () => {
    expect(alertsOf(snapshotOf([consumer({ paused: true }, true)]))[0]?.href).toBe('#/relays?handler=notify');
  });
});
