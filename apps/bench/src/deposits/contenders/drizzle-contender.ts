import { and, eq } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
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
import type { DepositContender } from '../deposit-contender.js';
import type { DepositEnvironment } from '../deposit-environment.js';
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

/** Deposits as one writes them with Drizzle: select, then a transaction with the guarded update and the insert. */
export function drizzleContender(environment: DepositEnvironment): DepositContender<'drizzle'> {
  const pool = poolOf(environment);
  const db = drizzle(pool);
  return {
    name: 'drizzle',
    environment,
    deposit: (target) =>
      untilFresh(async () => {
        const [wallet] = await db.select().from(wallets).where(eq(wallets.id, target.id.value));
        const { id, expectedVersion, version, balance, now, event } = handWrittenDeposit(target, wallet);
        return db.transaction(async (tx) => {
          const { rowCount } = await tx
            .update(wallets)
            .set({ balance, version, updatedDate: now })
            .where(and(eq(wallets.id, id), eq(wallets.version, expectedVersion)));
          // Nothing is written yet that would have to be undone.
          if (rowCount === 0) return false;
          await tx.insert(events).values(event);
          return true;
        });
      }),
    close: () => pool.end(),
  };
}
