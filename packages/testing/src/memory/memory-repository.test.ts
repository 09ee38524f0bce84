import {
  Action,
  ActionExecutor,
  Model,
  type New,
  ShardIdentifier,
  ShardedId,
  openDatabases,
  systemClock,
} from '@framework/core';
import type { DatabaseDriver } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { ConnectionLostError, MemoryFaults } from './memory-faults.js';
import { MemoryRepository } from './memory-repository.js';
import { memory, memorySharding } from './memory.js';

const shard = ShardIdentifier.of(0, 0);

class Basket extends Model<Basket, ShardedId<Basket>, 'OPEN'> {
  readonly items: string[];

  constructor(fields: New<Basket>) {
    super(fields);
    this.items = fields.items;
  }

  static of(items: string[], version = 0): Basket {
    const id = ShardedId.generate(Basket, shard);
    return new Basket({ id, state: 'OPEN', version, createdDate: new Date(0), items });
  }
}

const baskets = (): MemoryRepository<Basket> =>
  new MemoryRepository({ model: Basket, databases: openDatabases(memorySharding(shard), memory()) });

describe('MemoryRepository', () => {
  test('stores a copy that later changes of the model do not reach', async () => {
    const repository = baskets();
    const basket = Basket.of(['apple']);
    await repository.put(basket);
    basket.items.push('bread');
    basket.createdDate.setTime(1);
    expect(await repository.getById(basket.id)).toMatchObject({ items: ['apple'], createdDate: new Date(0) });
  });

  test('returns a copy each time, so that readers do not share changes', async () => {
    const repository = baskets();
    const { id } = await repository.put(Basket.of(['apple']));
    for (const read of [await repository.getById(id), ...(await repository.findAll())])
      read.items.push('bread');
    expect((await repository.getById(id)).items).toEqual(['apple']);
  });

  test('reads a page of one shard from no other database', async () => {
    const away = ShardIdentifier.of(1, 0);
    const faults = new MemoryFaults();
    const databases = openDatabases(memorySharding(shard, away), memory({ faults }));
    const repository = new MemoryRepository({ model: Basket, databases });
    const basket = await repository.put(Basket.of(['apple']));
    faults.inject((message) => {
      if (message.shard !== shard) throw new ConnectionLostError();
      return undefined;
    });
    expect(await repository.findPage({ limit: 5, shard })).toEqual({ items: [basket], next: undefined });
    await expect(repository.findPage({ limit: 5 })).rejects.toMatchObject({ code: 'transient-storage' });
  });

  test('stores a new model at version 1, and any other at its own version', async () => {
    const repository = baskets();
    expect(await repository.put(Basket.of([]))).toMatchObject({ version: 1 });
    const seventh = Basket.of([], 7);
    await repository.put(seventh);
    expect(await repository.getById(seventh.id)).toMatchObject({ version: 7 });
  });

  test('stores the row that a custom repository makes of a model', async () => {
    class Baskets extends MemoryRepository<Basket> {
      protected override toRow({ items, ...fields }: Basket): object {
        return { ...fields, events: [], items: items.join() };
      }

      protected override toModel(fields: Omit<New<Basket>, 'items'> & { readonly items: string }): Basket {
        return new Basket({ ...fields, items: fields.items.split(',') });
      }
    }
    const databases = openDatabases(memorySharding(shard), memory());
    const repository = new Baskets({ model: Basket, databases });
    const { id } = await repository.put(Basket.of(['apple', 'bread']));
    expect((await repository.getById(id)).items).toEqual(['apple', 'bread']);
  });

  test("refuses a row whose id or version differs from the model's", async () => {
    class Baskets extends MemoryRepository<Basket> {
      protected override toRow(basket: Basket): object {
        return { ...super.toRow(basket), ...this.changes };
      }
      constructor(readonly changes: object) {
        super({ model: Basket, databases: openDatabases(memorySharding(shard), memory()) });
      }
    }
    for (const changes of [
      { version: 3 },
      { version: undefined },
      { id: Basket.of([]).id },
      { id: undefined },
    ]) {
      await expect(new Baskets(changes).put(Basket.of([]))).rejects.toMatchObject({
        code: 'invariant-violation',
      });
    }
  });

  test('keeps the fields that an updated row leaves out', async () => {
    class Itemless extends MemoryRepository<Basket> {
      protected override toRow({ items: _items, ...fields }: Basket): object {
        return fields;
      }
    }
    const databases = openDatabases(memorySharding(shard), memory());
    const whole = new MemoryRepository({ model: Basket, databases });
    const itemless = new Itemless({ model: Basket, databases });
    const basket = await whole.put(Basket.of(['apple']));
    const createdDate = new Date(5);
    const changed = new Basket(Object.assign({}, basket, { createdDate, items: ['bread'] }));
    class SaveAction extends Action<void> {
      protected async perform(): Promise<void> {
        this.plan().update(changed);
      }
    }
    const actions = [new SaveAction(systemClock)];
    const executor = new ActionExecutor({
      namespace: 'memory',
      databases,
      repositories: [itemless],
      actions,
    });
    await executor.execute({ name: 'tester' }, SaveAction, undefined);
    expect(await whole.getById(basket.id)).toMatchObject({ version: 2, createdDate, items: ['apple'] });
  });

  test('restores the result of an action with the classes of its values', () => {
    class Money {
      constructor(readonly cents: bigint) {}
    }
    /** Has its constructor in every instance, like big.js. */
    class Decimal {
      readonly digits: string;

      constructor(digits: string) {
        this.digits = digits;
        this.constructor = Decimal;
      }
    }
    class Box extends Model<Box, ShardedId<Box>, 'OPEN'> {
      readonly values: Readonly<Record<string, unknown>>;

      constructor(fields: New<Box>) {
        super(fields);
        this.values = fields.values;
      }
    }
    const values = {
      money: [new Money(3n), new Money(-1n)],
      decimal: new Decimal('25.50'),
      date: new Date(5),
      bytes: new Uint8Array([1, 255]),
      map: new Map<unknown, unknown>([[shard, new Set([1, undefined])]]),
      text: 'text',
      nothing: [null, undefined, -0],
      tagged: { $kind: 'Date', value: 1 },
    };
    const id = ShardedId.generate(Box, shard);
    const box = new Box({ id, state: 'OPEN', version: 3, createdDate: new Date(0), values });
    const databases = openDatabases(memorySharding(shard), memory());
    const json = new MemoryRepository({ model: Box, databases }).jsonCodec().encode(box);
    const read = new MemoryRepository({ model: Box, databases }).jsonCodec().decode(json);
    expect(read).toStrictEqual(box);
    expect(read.id).toBeInstanceOf(ShardedId);
  });

  test('refuses a registry of another driver', () => {
    const driver = { open: () => ({ transactionManager: () => ({ shard }) }) } as unknown as DatabaseDriver;
    const databases = openDatabases(memorySharding(shard), driver);
    expect(() => new MemoryRepository({ model: Basket, databases })).toThrow(
      expect.objectContaining({ code: 'invariant-violation' }) as Error,
    );
  });
});
