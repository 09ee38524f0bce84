import { type ChangeSet, ShardIdentifier, ShardedId, openDatabases } from '@framework/core';
import { afterAll, describe, expect, it } from 'vitest';
import { Gadget, PgGadgetRepository } from '../../test/fixtures/gadget.js';
import { shardingConfig } from '../../test/fixtures/sharding-config.js';
import { postgres } from '../index.js';
import { GroupWriter } from './group-writer.js';

// Nothing is sent to it.
const config = shardingConfig([{ group: 0, member: 0, url: 'postgresql://127.0.0.1:1/none' }]);
const databases = openDatabases(config, postgres({ migrateOnOpen: false }));
const gadgets = new PgGadgetRepository(databases);
const shard = ShardIdentifier.of(0, 0);

function newId(): string {
  return ShardedId.generate(Object, shard).value;
}

/** A change set that writes these gadgets, each as the version that it has. */
function changeSetOf(...models: readonly Gadget[]): ChangeSet {
  return {
    shard,
    action: {
      id: newId(),
      name: 'TryAction',
      params: '{}',
      namespace: 'adapter.test',
      principal: 'tester',
      headers: '{}',
      startedDate: new Date(0),
    },
    changes: models.map((model) => ({
      kind: model.version === 1 ? ('add' as const) : ('update' as const),
      repository: gadgets,
      model,
      expectedVersion: model.version - 1,
      row: gadgets.encode(model),
    })),
    events: [],
  };
}

function updated(count: number, version = 2): readonly Gadget[] {
  return Array.from({ length: count }, () => Gadget.of({ version }));
}

describe('GroupWriter', () => {
  afterAll(() => databases.close());

  it('sends the same statement for groups of any size', () => {
    const writer = new GroupWriter();
    const sizes = [1, 2, 50].map((size) => writer.prepare(updated(size).map((each) => changeSetOf(each))));
    expect(new Set(sizes.map((each) => each?.query.name)).size).toBe(1);
    expect(new Set(sizes.map((each) => each?.query.text)).size).toBe(1);
    expect(sizes[0]?.query.text).not.toContain('for update');
  });

  it('locks rows first only where a plan has several of them', () => {
    const writer = new GroupWriter();
    const prepared = writer.prepare([changeSetOf(...updated(2)), changeSetOf(...updated(1))]);
    expect(prepared?.query.text).toContain('for update');
  });

  it('leaves out what follows a plan that it cannot hold', () => {
    const writer = new GroupWriter();
    const [gadget] = updated(1);
    const other = gadget!.with({ version: 3, origin: 'there' });
    const next = other.with({ version: 4 });
    const prepared = writer.prepare([gadget!, other, next].map((each) => changeSetOf(each)));
    expect(prepared?.outcomes([null, null])).toEqual(['written', 'alone', 'alone']);
  });

  it('tells which plan is stale, and lets those that follow it be written alone', () => {
    const writer = new GroupWriter();
    const [first, second] = updated(2).toSorted((one, other) => (one.id.value < other.id.value ? -1 : 1));
    const next = first!.with({ version: 3 });
    const prepared = writer.prepare([second!, first!, next].map((each) => changeSetOf(each)));
    expect(prepared?.outcomes(['1', null])).toEqual([
      'written',
      expect.objectContaining({ code: 'stale-record', id: first!.id.value, expectedVersion: 1 }),
      'alone',
    ]);
  });
});
