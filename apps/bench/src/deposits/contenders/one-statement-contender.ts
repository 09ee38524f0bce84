import pg from 'pg';
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
import { poolOf, urlOf } from './pool-of.js';

const connectionCount = 8;

const select = {
  name: 'one_statement_select',
  text: 'select state, version, balance from wallets where id = $1',
};
const write = {
  name: 'one_statement_write',
  text:
    'with changed as (update wallets set balance = $3, version = $4, updated_date = $5 ' +
    'where id = $1 and version = $2 returning 1) ' +
    `insert into eventlog.events (${eventColumns}) select ${eventParameters(6)} from changed`,
};

/** Deposits by a prepared select and one prepared statement that updates and inserts; each on a connection of its own. */
export function oneStatementContender(environment: DepositEnvironment): DepositContender<'one statement'> {
  const pool = poolOf(environment);
  return {
    name: 'one statement',
    environment,
    deposit: (target) =>
      untilFresh(async () => {
        const client = await pool.connect();
        try {
          return await attempt(client, target);
        } finally {
          client.release();
        }
      }),
    close: () => pool.end(),
  };
}

/** The same over few connections, each of which takes the statements of many callers without waiting for answers. */
export async function pipelinedContender(
  environment: DepositEnvironment,
): Promise<DepositContender<'one statement, pipelined'>> {
  const clients = Array.from(
    { length: connectionCount },
    () => new pg.Client({ connectionString: urlOf(environment), pipeline: true }),
  );
  // A broken connection shows in the calls that use it.
  for (const client of clients) client.on('error', () => undefined);
  await Promise.all(clients.map((client) => client.connect()));
  let turn = 0;
  return {
    name: 'one statement, pipelined',
    environment,
    deposit: (target) =>
      untilFresh(async () => {
        const client = clients[turn++ % connectionCount];
        if (client === undefined) throw new Error('There is no connection');
        return attempt(client, target);
      }),
    close: async () => {
      await Promise.all(clients.map((client) => client.end()));
    },
  };
}

async function attempt(client: pg.ClientBase, target: DepositTarget): Promise<boolean> {
  const { rows } = await client.query<ReadWallet & pg.QueryResultRow>({
    ...select,
    values: [target.id.value],
  });
  const deposit = handWrittenDeposit(target, rows[0]);
  const { id, expectedVersion, balance, version, now } = deposit;
  const { rowCount } = await client.query({
    ...write,
    values: [id, expectedVersion, balance, version, now, ...eventValues(deposit)],
  });
  return rowCount !== 0;
}
