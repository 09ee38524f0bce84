import pg from 'pg';

/**
 * Adds deposits to the log of a database, each in its own transaction: copies of the last event of each wallet, with the versions
 * that follow. The wallets' rows are not changed, because delivery reads only the log.
 *
 * @param perWalletCount how many events each wallet with a deposit gets
 */
export async function fillLog(url: string, perWalletCount: number): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    // The server commits inside the procedure; waiting for the disk at each commit would take minutes.
    await client.query('set synchronous_commit = off');
    await client.query(`
      create or replace procedure pg_temp.fill_log(per_wallet integer) language plpgsql as $$
      declare
        template eventlog.events;
        templates eventlog.events[];
      begin
        select array_agg(e) into templates from (
          select distinct on (model_id) e.* from eventlog.events e
          where event_type = 'WalletMoneyDepositedEvent' order by model_id, model_version desc) e;
        for step in 1..per_wallet loop
          foreach template in array templates loop
            insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
              model_name, model_version, event_type, payload, headers, started_date, slot, early_xid)
            values (gen_random_uuid(), gen_random_uuid(), template.ordinal, template.namespace, template.action_name,
              template.action_params, template.principal, template.model_id, template.model_name,
              template.model_version + step, template.event_type, template.payload, template.headers,
              clock_timestamp(), template.slot, template.early_xid);
            commit;
          end loop;
        end loop;
      end $$`);
    await client.query(`call pg_temp.fill_log(${perWalletCount})`);
    await client.query('analyze eventlog.events');
  } finally {
    await client.end();
  }
}
