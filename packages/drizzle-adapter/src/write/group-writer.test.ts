import { ShardIdentifier, ShardedId, openDatabases } from '@framework/core';
import type { AnyEntity, ChangeSet, ModelMapper } from '@framework/core/adapter';
import { Tag } from '@framework/conformance';
import { afterAll, describe, expect, test } from 'vitest';

import { Gadget, PgGadgetRepository } from '../../test/fixtures/gadget.js';
import { PgTagRepository } from '../../test/fixtures/pg-tag-repository.js';
import { shardingConfig } from '../../test/fixtures/sharding-config.js';
import { postgres } from '../index.js';
import { GroupWriter } from './group-writer.js';
import { type LookUp, PlainTables } from './plain-tables.js';

const answered = (isTyped: boolean): ReturnType<LookUp> =>
  Promise.resolve({ rows: [[isTyped, true]], command: 'SELECT', rowCount: 1, oid: 0, fields: [] });

/** Reports, for every table, that it has the declared types, and that a row may be written only once. */
const lookUp: LookUp = () => answered(true);

// Nothing is sent to this address.
const config = shardingConfig([{ group: 0, member: 0, url: 'postgresql://127.0.0.1:1/none' }]);
const databases = openDatabases(config, postgres({ migrate: 'off' }));
const gadgets = new PgGadgetRepository(databases);
const tags = new PgTagRepository(databases);
const shard = ShardIdentifier.of(0, 0);

function newId(): string {
  return ShardedId.generate(Object, shard).value;
}

/** A change set that writes these gadgets, each with the version that it has. */
function changeSetOf(...models: readonly Gadget[]): ChangeSet {
  return changeSetIn(gadgets, models);
}

function changeSetIn<E extends AnyEntity>(repository: ModelMapper<E>, models: readonly E[]): ChangeSet {
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
      repository,
      model,
      expectedVersion: model.version - 1,
      row: repository.encode(model),
    })),
    events: [],
  };
}

function updated(count: number, version = 2): readonly Gadget[] {
  return Array.from({ length: count }, () => Gadget.of({ version }));
}

function tagOf(id: ShardedId<Tag>, version: number): Tag {
  return new Tag({ id, state: 'ACTIVE', label: `version ${version}`, version });
}

describe('GroupWriter', () => {
  afterAll(() => databases.close());

  test('sends the same statement for groups of every size', async () => {
    const writer = new GroupWriter(new PlainTables());
    const sizes = await Promise.all(
      [1, 2, 50].map((size) =>
        writer.prepare(
          updated(size).map((each) => changeSetOf(each)),
          lookUp,
        ),
      ),
    );
    expect(new Set(sizes.map((each) => each?.query.name)).size).toBe(1);
    expect(new Set(sizes.map((each) => each?.query.text)).size).toBe(1);
    expect(sizes[0]?.query.text).not.toContain('for update');
  });

  test('locks rows first only when a plan has several of them', async () => {
    const writer = new GroupWriter(new PlainTables());
    const prepared = await writer.prepare([changeSetOf(...updated(2)), changeSetOf(...updated(1))], lookUp);
    expect(prepared?.query.text).toContain('for update');
  });

  test('leaves out the plans that follow one that it cannot hold', async () => {
    const writer = new GroupWriter(new PlainTables());
    const [gadget] = updated(1);
    const other = gadget!.with({ version: 3, origin: 'there' });
    const next = other.with({ version: 4 });
    const prepared = await writer.prepare(
      [gadget!, other, next].map((each) => changeSetOf(each)),
      lookUp,
    );
    expect(prepared?.outcomes([null, null])).toEqual(['written', 'single', 'single']);
  });

  test('reports which plan is stale, and leaves the plans that follow it to be written alone', async () => {
    const writer = new GroupWriter(new PlainTables());
    const [first, second] = [1, 2]
      .map(() => tagOf(ShardedId.generate(Tag, shard), 2))
      .toSorted((one, other) => (one.id.value < other.id.value ? -1 : 1));
    const next = tagOf(first!.id, 3);
    const group = [second!, first!, next].map((each) => changeSetIn(tags, [each]));
    const prepared = await writer.prepare(group, lookUp);
    expect(prepared?.outcomes(['1', null])).toEqual([
      'written',
      expect.objectContaining({ code: 'stale-record', id: first!.id.value, expectedVersion: 1 }),
      'single',
    ]);
  });

  test('leaves out rows of a table whose columns have other types than declared', async () => {
    const writer = new GroupWriter(new PlainTables());
    const group = [changeSetOf(...updated(1)), changeSetIn(tags, [tagOf(ShardedId.generate(Tag, shard), 2)])];
    const prepared = await writer.prepare(group, ({ values = [] }) => answered(values[0] !== '"tags"'));
    expect(prepared?.outcomes([null, null])).toEqual(['written', 'single']);
  });

  test('refuses to report a row as missing that the database cannot have looked for', async () => {
    const writer = new GroupWriter(new PlainTables());
    const prepared = await writer.prepare([changeSetOf(...updated(1))], lookUp);
    expect(() => prepared?.outcomes(['2', null])).toThrow(
      expect.objectContaining({ code: 'invariant-violation' }),
    );
  });
});
