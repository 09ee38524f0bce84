import pg from 'pg';
import type { DepositContender } from '../deposit-contender.js';
import type { DepositTarget, DepositEnvironment } from '../deposit-environment.js';
import {
  type ReadWallet,
  eventColumns,
  eventParameters,
  eventValues,
  handWrittenDeposit,
  relativeDeposit,
  untilFresh,
} from './hand-written-deposit.js';
import { urlOf } from './pool-of.js';

const connectionCount = 8;

const select = {
  name: 'statement_select',
  text: 'select state, version, balance from wallets where id = $1',
};
const write = {
  name: 'statement_write',
  text:
    'with changed as (update wallets set balance = $3, version = $4, updated_date = $5 ' +
    'where id = $1 and version = $2 returning 1) ' +
    `insert into eventlog.events (${eventColumns}) select ${eventParameters(6)} from changed`,
};
const add = {
  name: 'relative_add',
  text:
    'with changed as (update wallets set balance = balance + $2, version = version + 1, updated_date = $3 ' +
    `where id = $1 and state = 'OPENED' returning version, trim_scale(balance)::text as new_balance) ` +
    `insert into eventlog.events (${eventColumns}) ` +
    `select ${eventParameters(4, {
      modelVersion: 'version',
      payload: `jsonb_build_object('amount', $2::numeric::text, 'newBalance', new_balance)`,
    })} from changed`,
};

/**
 * Deposits by a prepared select, and one prepared statement that updates and inserts, over few connections, each of which
 * takes the statements of many callers without waiting for answers.
 */
export async function statementContender(
  environment: DepositEnvironment,
): Promise<DepositContender<'statement'>> {
  return pipelined('statement', environment, (client, target) =>
    untilFresh(() => guardedDeposit(client(), target)),
  );
}

/**
 * Deposits by a single prepared statement over such connections: the database adds the amount to the balance, so that nothing
 * is read before and nothing is stale. What a wallet allows is decided in SQL.
 */
export async function relativeUpdateContender(
  environment: DepositEnvironment,
): Promise<DepositContender<'relative update'>> {
  return pipelined('relative update', environment, (client, target) => addToBalance(client(), target));
}

async function pipelined<Name extends string>(
  name: Name,
  environment: DepositEnvironment,
  deposit: (client: () => pg.Client, target: DepositTarget) => Promise<void>,
): Promise<DepositContender<Name>> {
  const clients = Array.from(
    { length: connectionCount },
    () => new pg.Client({ connectionString: urlOf(environment), pipeline: true }),
  );
  // A broken connection shows in the calls that use it.
  for (const client of clients) client.on('error', () => undefined);
  await Promise.all(clients.map((client) => client.connect()));
  let turn = 0;
  const next = (): pg.Client => {
    const client = clients[turn++ % connectionCount];
    if (client === undefined) throw new Error('There is no connection');
    return client;
  };
  return {
    name,
    environment,
    deposit: (target) => deposit(next, target),
    close: async () => {
      await Promise.all(clients.map((client) => client.end()));
    },
  };
}

/** Reads and writes; resolves with false when another deposit was faster. */
async function guardedDeposit(client: pg.ClientBase, target: DepositTarget): Promise<boolean> {
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

async function addToBalance(client: pg.ClientBase, target: DepositTarget): Promise<void> {
  const { id, amount, now, event } = relativeDeposit(target);
  const { rowCount } = await client.query({ ...add, values: [id, amount, now, ...eventValues({ event })] });
  if (rowCount !== 1) throw new Error(`Wallet ${id} is not open`);
}
