import pg from 'pg';
import type { BenchContext } from '../benchmark/benchmark.js';
import { type DepositWorld, openTargets } from './deposit-world.js';
import { frameworkSide } from './sides/framework-side.js';
import { urlOf } from './sides/pool-of.js';

const insertedAtOnce = 500_000;
const versionsPerWallet = 10;

/**
 * Fills the log with the deposits of wallets that nobody uses any more: copies of a real one, with ids that grow with
 * time as real ones do, and the versions of a wallet side by side.
 */
export async function fillHistory(
  world: DepositWorld,
  count: number,
  say: BenchContext['say'],
): Promise<void> {
  const [target] = await openTargets(world, 1);
  if (target === undefined) throw new Error('No wallet was opened');
  await frameworkSide(world).deposit(target);
  const client = new pg.Client({ connectionString: urlOf(world) });
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
    // Else the server would do both in the middle of what is measured.
    await client.query('vacuum (freeze, analyze) eventlog.events');
    await client.query('checkpoint');
  } finally {
    await client.end();
  }
}
