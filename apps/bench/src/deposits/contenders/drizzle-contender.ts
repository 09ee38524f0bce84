import { type Placeholder, and, eq, getTableColumns, sql } from 'drizzle-orm';
import { type NodePgDatabase, drizzle } from 'drizzle-orm/node-postgres';
import {
  bigint,
  boolean,
  integer,
  jsonb,
  numeric,
  pgSchema,
  pgTable,
  smallint,
  text,
  timestamp,
  uuid,
} from 'drizzle-orm/pg-core';
import type pg from 'pg';
import type { DepositContender } from '../deposit-contender.js';
import type { DepositEnvironment, DepositTarget } from '../deposit-environment.js';
import { handWrittenDeposit, untilFresh } from './hand-written-deposit.js';
import { poolOf } from './pool-of.js';

const wallets = pgTable('wallets', {
  id: uuid('id').primaryKey(),
  version: bigint('version', { mode: 'number' }).notNull(),
  updatedDate: timestamp('updated_date', { withTimezone: true }).notNull(),
  state: text('state').notNull(),
  balance: numeric('balance', { precision: 38, scale: 18 }).notNull(),
});

const events = pgSchema('eventlog').table('events', {
  id: uuid('id').notNull(),
  actionId: uuid('action_id').notNull(),
  ordinal: integer('ordinal').notNull(),
  namespace: text('namespace').notNull(),
  actionName: text('action_name').notNull(),
  actionParams: jsonb('action_params').notNull(),
  principal: text('principal').notNull(),
  modelId: text('model_id'),
  modelName: text('model_name'),
  modelVersion: bigint('model_version', { mode: 'number' }),
  eventType: text('event_type'),
  payload: jsonb('payload'),
  headers: jsonb('headers').notNull(),
  startedDate: timestamp('started_date', { withTimezone: true }).notNull(),
  slot: smallint('slot'),
  earlyXid: boolean('early_xid').notNull(),
});

const eventPlaceholders = Object.fromEntries(
  Object.keys(getTableColumns(events)).map((name) => [name, sql.placeholder(name)]),
) as Record<keyof typeof events.$inferInsert, Placeholder>;

/**
 * Deposits with Drizzle and `.prepare()`: a select, then `db.transaction` with the guarded update and the insert. Within a
 * transaction, the text of a query is made each time, because Drizzle binds what it prepares to a connection.
 */
export function drizzleContender(environment: DepositEnvironment): DepositContender<'drizzle'> {
  const pool = poolOf(environment);
  const db = drizzle(pool);
  const select = selectOf(db);
  return {
    name: 'drizzle',
    environment,
    deposit: (target) =>
      untilFresh(async () => {
        const [wallet] = await select.execute({ id: target.id.value });
        const { event, ...deposit } = handWrittenDeposit(target, wallet);
        return db.transaction(async (tx) => {
          const { rowCount } = await updateOf(tx).execute(deposit);
          // Nothing has been written yet, so nothing has to be undone.
          if (rowCount !== 0) await insertOf(tx).execute(event);
          return rowCount !== 0;
        });
      }),
    close: () => pool.end(),
  };
}

/**
 * Deposits with Drizzle, as fast as Drizzle can make it: every query is prepared once for each connection and kept with it, and
 * the transaction begins and ends without Drizzle, which does not prepare that.
 */
export function drizzlePerConnectionContender(
  environment: DepositEnvironment,
): DepositContender<'drizzle, per connection'> {
  const pool = poolOf(environment);
  const prepared = new WeakMap<pg.PoolClient, Queries>();
  return {
    name: 'drizzle, per connection',
    environment,
    deposit: (target) =>
      untilFresh(async () => {
        const client = await pool.connect();
        try {
          const queries = prepared.get(client) ?? queriesOf(client);
          prepared.set(client, queries);
          return await attempt(client, queries, target);
        } finally {
          client.release();
        }
      }),
    close: () => pool.end(),
  };
}

async function attempt(client: pg.PoolClient, queries: Queries, target: DepositTarget): Promise<boolean> {
  const [wallet] = await queries.select.execute({ id: target.id.value });
  const { event, ...deposit } = handWrittenDeposit(target, wallet);
  await client.query({ name: 'drizzle_begin', text: 'begin' });
  const { rowCount } = await queries.update.execute(deposit);
  if (rowCount !== 0) await queries.insert.execute(event);
  await client.query({ name: 'drizzle_commit', text: 'commit' });
  return rowCount !== 0;
}

type Queries = ReturnType<typeof queriesOf>;

function queriesOf(client: pg.PoolClient) {
  const db = drizzle(client);
  return { select: selectOf(db), update: updateOf(db), insert: insertOf(db) };
}

function selectOf(db: Pick<NodePgDatabase, 'select'>) {
  const { id, state, version, balance } = wallets;
  return db
    .select({ state, version, balance })
    .from(wallets)
    .where(eq(id, sql.placeholder('id')))
    .prepare('drizzle_select');
}

function updateOf(db: Pick<NodePgDatabase, 'update'>) {
  return db
    .update(wallets)
    .set({
      balance: sql`${sql.placeholder('balance')}`,
      version: sql`${sql.placeholder('version')}`,
      updatedDate: sql`${sql.placeholder('now')}`,
    })
    .where(
      and(eq(wallets.id, sql.placeholder('id')), eq(wallets.version, sql.placeholder('expectedVersion'))),
    )
    .prepare('drizzle_update');
}

function insertOf(db: Pick<NodePgDatabase, 'insert'>) {
  return db.insert(events).values(eventPlaceholders).prepare('drizzle_insert');
}
