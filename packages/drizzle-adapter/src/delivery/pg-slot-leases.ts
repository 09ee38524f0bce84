import type { LeaseRenewal, LeasedSlot, SlotLease, SlotLeases } from '@framework/core/adapter';

import type { Connection } from '../connection/connection.js';

/** What a renewal reports about other processes, repeated in each row. */
interface Others {
  readonly alone: boolean;
  readonly endsInMs: number | null;
}

/** The row for a process that gets no slot. */
interface NoLease {
  readonly handler: null;
}

/** The leases of slots in one PostgreSQL database. */
export class PgSlotLeases implements SlotLeases {
  readonly #manager: Connection;

  constructor(manager: Connection) {
    this.#manager = manager;
  }

  async renew(
    processId: string,
    handlers: readonly string[],
    leaseMs: number,
    shards: readonly string[] = [],
    givenBack: readonly string[] = [],
  ): Promise<LeaseRenewal> {
    const { rows } = await this.#manager.query<(SlotLease | NoLease) & Others>({
      name: 'framework_renew_handler_leases',
      text: `select handler, slot, token::text as token, abandoned, surplus, alone, ends_in_ms as "endsInMs"
             from (
               select count(*) = 0 as alone, (extract(epoch from min(until_date) filter (where until_date > clock_timestamp())
                 - clock_timestamp()) * 1000)::double precision as ends_in_ms
               from eventlog.processes where process_id <> $1) others
             left join eventlog.renew_leases($1, $2, $4, $3::double precision * interval '1 millisecond', $5) on true`,
      values: [processId, [...handlers], leaseMs, [...shards], [...givenBack]],
    });
    const [others] = rows;
    const leases = rows.flatMap(({ alone: _alone, endsInMs: _endsInMs, ...lease }) =>
      lease.handler === null ? [] : [lease],
    );
    return { leases, alone: others?.alone ?? false, othersEndInMs: others?.endsInMs ?? undefined };
  }

  async recovered(tokens: readonly string[]): Promise<void> {
    await this.#manager.query({
      name: 'framework_slots_recovered',
      text: `update eventlog.leases set abandoned = false
             where token = any($1::uuid[]) and history = eventlog.server_history()`,
      values: [[...tokens]],
    });
  }

  async release(processId: string): Promise<void> {
    await this.#manager.query({
      name: 'framework_release_handler_leases',
      text: `with gone as (delete from eventlog.processes where process_id = $1)
             update eventlog.leases set process_id = null, token = gen_random_uuid() where process_id = $1`,
      values: [processId],
    });
  }

  async list(): Promise<readonly LeasedSlot[]> {
    const { rows } = await this.#manager.query<{
      handler: string;
      slot: number;
      processId: string | null;
      untilDate: Date | null;
    }>({
      text: `select handler, slot, process_id as "processId", until_date as "untilDate"
             from eventlog.leases left join eventlog.processes using (process_id) order by handler, slot`,
    });
    return rows.map(({ processId, untilDate, ...leased }) => ({
      ...leased,
      processId: processId ?? undefined,
      untilDate: untilDate ?? undefined,
    }));
  }
}

/**
 * An SQL clause `held` for statements that write under leases. It selects the leases of the rows of `given as g` that
 * are still valid, and locks them until the statement ends. A lease from another history of the database, before a
 * crash, a failover or a restore, is not valid.
 */
export const heldLeases = `server as materialized (
    select eventlog.server_history() as history
  ), held as (
    select l.handler, l.slot, l.token from eventlog.leases l
    where exists (select from given g where (g.handler, g.slot, g.token) = (l.handler, l.slot, l.token))
      and l.history = (select history from server)
    for share
  )`;
