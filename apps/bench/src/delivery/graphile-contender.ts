import { Logger, run, runMigrations } from 'graphile-worker';
import pg from 'pg';

const taskName = 'deposited';
const addedAtOnce = 5_000;
// The best settings for a backlog of empty jobs: many at once, and as few statements as possible. Jobs are no faster with a batch
// delay, with more of them at once, or when more than 5,000 are fetched at once.
const preset = {
  worker: {
    concurrentJobs: 24,
    localQueue: { size: 5_000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
} as const;

/** Runs empty jobs with the payload of a deposit; each measurement first adds its jobs. */
export async function graphileContender(url: string, walletCount: number, count: number) {
  await runMigrations({ connectionString: url, logger: silent });
  return {
    name: 'graphile-worker',
    measure: async (): Promise<number> => {
      await addJobs(url, walletCount, count);
      const pool = new pg.Pool({ connectionString: url, max: 10 });
      // The pool requires an error handler; a broken connection shows in the counts below.
      pool.on('error', () => undefined).on('connect', (client) => void client.on('error', () => undefined));
      let handled = 0;
      const done = Promise.withResolvers<void>();
      const startedAtMs = performance.now();
      const runner = await run({
        pgPool: pool,
        preset,
        logger: silent,
        noHandleSignals: true,
        taskList: {
          [taskName]: async () => {
            if (++handled === count) done.resolve();
          },
        },
      });
      await done.promise;
      const perSecond = (count / (performance.now() - startedAtMs)) * 1_000;
      await runner.stop();
      const left = await pool.query<{ count: string }>('select count(*) from graphile_worker.jobs');
      await pool.end();
      if (handled !== count || left.rows[0]?.count !== '0') {
        throw new Error(`graphile-worker ran ${handled} jobs of ${count} and left ${left.rows[0]?.count}`);
      }
      return perSecond;
    },
  } as const;
}

async function addJobs(url: string, walletCount: number, count: number): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    for (let first = 1; first <= count; first += addedAtOnce) {
      await client.query(
        `select count(*) from graphile_worker.add_jobs((
           select array_agg(row($1, json_build_object(
             'walletId', 'wallet-' || number % $2, 'amount', '25.50', 'newBalance', '1025.50'
           ), null, null, null, null, null, null)::graphile_worker.job_spec)
           from generate_series($3::integer, $4::integer) number))`,
        [taskName, walletCount, first, Math.min(count, first + addedAtOnce - 1)],
      );
    }
    await client.query('vacuum analyze graphile_worker._private_jobs');
  } finally {
    await client.end();
  }
}

const silent = new Logger(() => () => undefined);
