import pg from 'pg';
import type { BenchContext } from '../benchmark/benchmark.js';
import { type DepositEnvironment, openTargets } from './deposit-environment.js';
import { frameworkContender } from './contenders/framework-contender.js';
import { urlOf } from './contenders/pool-of.js';

const insertedAtOnce = 500_000;
const versionsPerWallet = 10;

/**
 * Fills the log with deposits to wallets that are no longer used: copies of a real one, with ids that grow with time as real ones
 * do, and the versions of a wallet next to each other.
 */
export async function fillHistory(
  environment: DepositEnvironment,
  count: number,
  say: BenchContext['say'],
): Promise<void> {
  const [target] = await openTargets(environment, 1);
  if (target === undefined) throw new Error('No wallet was opened');
  await frameworkContender(environment).deposit(target);
  const client = new pg.Client({ connectionString: urlOf(environment) });
  await client.connect();
  try {
    for (let first = 0; first < count; first += insertedAtOnce) {
      const last = Math.min(first + insertedAtOnce, count) - 1;
      await client.query(
        `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
           model_name, model_version, event_type, payload, headers, started_date, slot, early_xid)
         select uuidv7(), uuidv7(), e.ordinal, e.namespace, e.action_name, e.action_params, e.principal,
           md5((number / $4)::text)::uuid::text, e.model_name, number % $4 + 2, e.event_type, e.payload, e.headers,
           clock_timestamp(), number / $4 % 16, e.early_xid
         from (select * from eventlog.events where model_id = $1 order by model_version desc limit 1) e,
           generate_series($2::integer, $3::integer) number`,
        [target.id.value, first, last, versionsPerWallet],
      );
      say(`  ${(last + 1).toLocaleString('en')} events are in the log`);
    }
    // Otherwise the server would vacuum and analyze during the measurement.
    await client.query('vacuum (freeze, analyze) eventlog.events');
    await client.query('checkpoint');
  } finally {
    await client.end();
  }
}
