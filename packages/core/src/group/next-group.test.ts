import { describe, expect, test } from 'vitest';
import type { ChangeSet } from '../persistence/change-set.js';
import { nextGroup } from './next-group.js';
import { QueuedPlan } from './queued-plan.js';

describe('a queue', () => {
  test('may be longer than a call has arguments', () => {
    const plan = new QueuedPlan({ changes: [] } as unknown as ChangeSet, []);
    const queue = Array.from({ length: 200_000 }, () => plan);
    const { group, rest } = nextGroup(queue, 32);
    expect([group.length, rest.length]).toEqual([32, 199_968]);
  });
});
