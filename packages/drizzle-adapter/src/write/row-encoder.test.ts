import { Entity, Model, type NewEntity, ShardIdentifier, ShardedId } from '@framework/core';
import { pgTable, text } from 'drizzle-orm/pg-core';
import { expect, test } from 'vitest';

import { entityColumns, modelColumns } from '../model-columns.js';
import { RowEncoder } from './row-encoder.js';

class Concert extends Entity<Concert, ShardedId<Concert>, 'PLANNED'> {
  readonly events: readonly string[];
  constructor(fields: NewEntity<Concert> & { readonly events: readonly string[] }) {
    super(fields);
    this.events = fields.events;
  }
}

class Seat extends Entity<Seat, ShardedId<Seat>, 'FREE'> {}

class Wallet extends Model<Wallet, ShardedId<Wallet>, 'OPENED'> {}

const shard = ShardIdentifier.of(0, 0);
const concert = new Concert({
  id: ShardedId.generate(Concert, shard),
  state: 'PLANNED',
  version: 1,
  events: ['opening', 'encore'],
});

test('a field named events of an entity is refused if it has no column', () => {
  const encoder = new RowEncoder('Concert', pgTable('concerts', entityColumns(Concert)));
  expect(() => encoder.encodeModel(concert, true)).toThrow(
    expect.objectContaining({
      code: 'invariant-violation',
      message: expect.stringContaining('Concert.events has no column'),
    }),
  );
});

test('a field named events of an entity is stored in its column', () => {
  const table = pgTable('concerts', { ...entityColumns(Concert), events: text('events').array().notNull() });
  const { shape, values } = new RowEncoder('Concert', table).encodeModel(concert, true);
  expect(values[shape.fields.indexOf('events')]).toContain('encore');
});

test('the events of a model need no column', () => {
  const id = ShardedId.generate(Wallet, shard);
  const wallet = new Wallet({ id, state: 'OPENED', version: 1, createdDate: new Date(0) });
  const encoder = new RowEncoder('Wallet', pgTable('wallets', modelColumns(Wallet)));
  expect(encoder.encodeModel(wallet, true).shape.fields).toEqual([
    'id',
    'state',
    'version',
    'createdDate',
    'updatedDate',
  ]);
});

test('columns without a value get that of their declared functions, as Drizzle calls them', () => {
  const table = pgTable('seats', {
    ...entityColumns(Seat),
    token: text('token').$defaultFn(() => 'new'),
    touched: text('touched').$onUpdate(() => 'touched'),
  });
  const encoder = new RowEncoder('Seat', table);
  const id = ShardedId.generate(Seat, shard);
  const valuesOf = (version: number): object => {
    const { shape, values } = encoder.encodeModel(new Seat({ id, state: 'FREE', version }), true);
    return Object.fromEntries(shape.fields.map((field, index) => [field, values[index]]));
  };
  expect(valuesOf(1)).toMatchObject({ token: 'new', touched: 'touched' });
  expect(valuesOf(2)).toEqual({ id: id.value, state: 'FREE', version: 2, touched: 'touched' });
});
