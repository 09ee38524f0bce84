import type pg from 'pg';

/**
 * Writes copies of a wallet's last deposit to the log, with the versions that follow; the wallet's row is not changed.
 *
 * @param client on which the caller may have begun a transaction
 * @returns the versions
 */
export async function addDeposits(
  client: pg.ClientBase,
  walletId: string,
  count: number,
): Promise<readonly number[]> {
  const { rows } = await client.query<{ model_version: string }>(
    `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
       model_name, model_version, event_type, payload, headers, started_date, slot, early_xid)
     select gen_random_uuid(), gen_random_uuid(), e.ordinal, e.namespace, e.action_name, e.action_params, e.principal,
       e.model_id, e.model_name, e.model_version + step, e.event_type, e.payload, e.headers, clock_timestamp(), e.slot, true
     from (select * from eventlog.events where model_id = $1 and event_type = 'WalletMoneyDepositedEvent'
           order by model_version desc limit 1) e,
       generate_series(1, $2::integer) step
     order by step
     returning model_version`,
    [walletId, count],
  );
  return rows.map(({ model_version: version }) => Number(version));
}
