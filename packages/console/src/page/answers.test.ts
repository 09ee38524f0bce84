import { expect, test } from 'vitest';

import { type Change, boundOf } from './answers.js';

const item = { shards: ['0/0'], count: 3, mayBeMore: false };
const dryRun: Change = { changeId: undefined, count: 3, mayBeMore: false, items: [item], failures: [] };

test('a change is limited to what was counted, if everything was', () => {
  expect(boundOf('replay', dryRun)).toEqual({ limit: 3 });
  expect(boundOf('skip', { ...dryRun, mayBeMore: true })).toEqual({});
  expect(boundOf('skip', undefined)).toEqual({});
});

test('publishing again is not limited to what was counted, because a later event would refuse all', () => {
  expect(boundOf('publish-again', dryRun)).toEqual({});
});
