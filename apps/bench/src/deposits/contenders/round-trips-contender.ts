import type pg from 'pg';
import type { DepositContender } from '../deposit-contender.js';
import type { DepositTarget, DepositEnvironment } from '../deposit-environment.js';
import {
  type ReadWallet,
  eventColumns,
  eventParameters,
  eventValues,
  handWrittenDeposit,
  untilFresh,
} from './hand-written-deposit.js';
import { poolOf } from './pool-of.js';

const select = 'select state, version, balance from wallets where id = $1';
const update =
  'update wallets set balance = $3, version = $4, updated_date = $5 where id = $1 and version = $2';
const insert = `insert into eventlog.events (${eventColumns}) values (${eventParameters(1)})`;

/** Deposits in five round trips of prepared statements: begin, select, guarded update, insert, commit. */
export function roundTripsContender(environment: DepositEnvironment): DepositContender<'five round trips'> {
  return {
    ...contender(environment, { name: 'round_trips_select', text: select }),
    name: 'five round trips',
  };
}

/** The same with `select … for update`: deposits to one wallet wait for each other, and none is stale. */
export function selectForUpdateContender(
  environment: DepositEnvironment,
): DepositContender<'select for update'> {
  const locking = { name: 'round_trips_lock', text: `${select} for update` };
  return { ...contender(environment, locking), name: 'select for update' };
}

function contender(environment: DepositEnvironment, read: { readonly name: string; readonly text: string }) {
  const pool = poolOf(environment);
  return {
    environment,
    deposit: (target: DepositTarget) =>
      untilFresh(async () => {
        const client = await pool.connect();
        try {
          return await attempt(client, target, read);
        } finally {
          client.release();
        }
      }),
    close: () => pool.end(),
  };
}

async function attempt(
  client: pg.ClientBase,
  target: DepositTarget,
  read: { readonly name: string; readonly text: string },
): Promise<boolean> {
  await client.query({ name: 'round_trips_begin', text: 'begin' });
  const { rows } = await client.query<ReadWallet & pg.QueryResultRow>({ ...read, values: [target.id.value] });
  const deposit = handWrittenDeposit(target, rows[0]);
  const { id, expectedVersion, balance, version, now } = deposit;
  const { rowCount } = await client.query({
    name: 'round_trips_update',
    text: update,
    values: [id, expectedVersion, balance, version, now],
  });
  if (rowCount !== 0) {
    await client.query({ name: 'round_trips_insert', text: insert, values: eventValues(deposit) });
  }
  await client.query({ name: 'round_trips_commit', text: 'commit' });
  return rowCount !== 0;
}
