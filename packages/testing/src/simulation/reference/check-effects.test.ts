import { ShardIdentifier } from '@framework/core';
import { expect, test } from 'vitest';

import type { MemoryCommit } from '../../memory/index.js';
import { History, effectHeader } from '../history.js';
import { checkEffects } from './check-effects.js';

/** The commits of handlers with these effects, each by a separate action. */
function commitsOf(...effects: readonly string[]): readonly MemoryCommit[] {
  return effects.map((effect, position) => ({
    position,
    shard: ShardIdentifier.of(0, 0),
    action: {
      id: `action-${position}`,
      name: 'EchoAction',
      params: '{}',
      principal: 'somebody',
      namespace: 'test',
      headers: JSON.stringify({ 'causation-id': 'event-1', [effectHeader]: effect }),
      startedDate: new Date(0),
    },
    createdDate: new Date(0),
    changes: [],
    events: [],
    recordId: `record-${position}`,
  }));
}

test("an event's effect may occur once for each id that its handler had", () => {
  const history = new History();
  const commits = commitsOf(
    'notify event-1 EchoAction ',
    'notify event-1 EchoAction ',
    'notify event-2 EchoAction ',
  );
  expect(checkEffects(history, commits)).toEqual(['notify event-1 EchoAction  has 2 effects']);
  history.idsOfLost.set('notify event-1', new Set(['notify', 'another']));
  expect(checkEffects(history, commits)).toEqual([]);
  const more = commitsOf(...Array.from({ length: 3 }, () => 'notify event-1 EchoAction '));
  expect(checkEffects(history, more)).toEqual(['notify event-1 EchoAction  has 3 effects']);
  const others = commitsOf('notify event-2 EchoAction ', 'notify event-2 EchoAction ');
  expect(checkEffects(history, others)).toEqual(['notify event-2 EchoAction  has 2 effects']);
});
