// A long list is read in pages: here the products of both shards, two at a time, the most expensive first.
import { Model, type New, ShardIdentifier, ShardedId, openDatabases, systemClock } from '@framework/core';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';

class Product extends Model<Product, ShardedId<Product>, 'ON_SALE'> {
  readonly name: string;
  readonly price: number;

  constructor(fields: New<Product>) {
    super(fields);
    this.name = fields.name;
    this.price = fields.price;
  }

  static offer(shard: ShardIdentifier, name: string, price: number): Product {
    const id = ShardedId.generate(Product, shard);
    return new Product({ id, state: 'ON_SALE', createdDate: systemClock.now(), name, price });
  }
}

const [north, south] = [ShardIdentifier.of(0, 0), ShardIdentifier.of(1, 0)];
const databases = openDatabases(memorySharding(north, south), memory());
const products = new MemoryRepository({ model: Product, databases });
await products.put(Product.offer(north, 'lamp', 40));
await products.put(Product.offer(south, 'desk', 310));
await products.put(Product.offer(north, 'chair', 120));
await products.put(Product.offer(south, 'shelf', 95));
await products.put(Product.offer(north, 'vase', 25));

function line({ name, price }: Product): string {
  return `${name} ${price}`;
}

let after: string | undefined;
do {
  const page = await products.findPage({ limit: 2, orderBy: 'price', direction: 'descending', after });
  console.log(page.items.map(line).join(', '));
  // A text that says where the next page begins, even if products were added meanwhile.
  after = page.next;
} while (after !== undefined);

const inSouth = await products.findPage({ limit: 10, orderBy: 'name', shard: south });
console.log(`in the south: ${inSouth.items.map(line).join(', ')}`);

// Output:
// desk 310, chair 120
// shelf 95, lamp 40
// vase 25
// in the south: desk 310, shelf 95
