// A hundred requests change one model at once. With group commit, PostgreSQL writes them in a few transactions.
import {
  Action,
  ActionExecutor,
  Model,
  type New,
  ShardIdentifier,
  ShardedId,
  openDatabases,
  parseFrameworkConfig,
  systemClock,
} from '@framework/core';
import { PgRepository, modelColumns, postgres } from '@framework/drizzle-adapter';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { sql } from 'drizzle-orm';
import { integer, pgTable } from 'drizzle-orm/pg-core';

class Page extends Model<Page, ShardedId<Page>, 'ONLINE'> {
  readonly visits: number;

  constructor(fields: New<Page>) {
    super(fields);
    this.visits = fields.visits;
  }

  visit(): Page {
    return this.copy({ visits: this.visits + 1 });
  }
}

/** The first visit adds the page. */
class VisitPageAction extends Action<ShardedId<Page>, Page> {
  protected async perform(_principal: unknown, id: ShardedId<Page>): Promise<Page> {
    const page = await pages.findById(id);
    if (page !== undefined) return this.plan().update(page.visit());
    return this.plan().add(new Page({ id, state: 'ONLINE', createdDate: this.clock.now(), visits: 1 }));
  }
}

const server = await EmbeddedPostgres.startTemporary();
const configs = { primaryConfig: { jdbcUrl: server.url('postgres') } };
const groups = [{ group: 0, name: 'site', members: [{ member: 0, name: 'site-0', configs }] }];
const { namespace, sharding } = parseFrameworkConfig({
  framework: { namespace: 'com.example.site', sharding: { defaultShard: { group: 0, member: 0 }, groups } },
});

const databases = openDatabases(sharding, postgres());
await databases.ready();
const table = pgTable('pages', { ...modelColumns(Page), visits: integer('visits').notNull() });
const pages = new PgRepository({ model: Page, table, databases });
const shard = ShardIdentifier.of(0, 0);
await pages.db(shard).execute(sql`create table pages (
  id uuid primary key, state text not null, version bigint not null,
  created_date timestamptz not null, updated_date timestamptz not null, visits integer not null)`);

const executor = new ActionExecutor({
  namespace,
  databases,
  repositories: [pages],
  actions: [new VisitPageAction(systemClock)],
  groupCommit: true,
});

const id = ShardedId.generate(Page, shard);
const visitors = Array.from({ length: 100 }, (_unused, index) => ({ name: `visitor ${index}` }));
await Promise.all(visitors.map((visitor) => executor.execute(visitor, VisitPageAction, id)));
const { visits, version } = await pages.getById(id);
console.log(`${visits} visits, version ${version}`);

// The log has a row for each action; rows of one transaction have the same xmin.
const { rows } = await pages.db(shard).execute<{ actions: number; transactions: number }>(sql`
  select count(*)::int as actions, count(distinct xmin::text)::int as transactions from eventlog.events`);
for (const { actions: logged, transactions } of rows)
  console.log(`${logged} actions in ${transactions < 50 ? 'fewer than 50' : transactions} transactions`);
await databases.close();
await server.stop();

// Output:
// 100 visits, version 100
// 100 actions in fewer than 50 transactions
