import type { LeaseRenewal, LeasedSlot, SlotLease, SlotLeases } from '@framework/core';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';

/** Who works on which slots of one PostgreSQL database. */
export class PgSlotLeases implements SlotLeases {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async renew(
    processId: string,
    handlers: readonly string[],
    leaseMs: number,
    shards: readonly string[] = [],
  ): Promise<LeaseRenewal> {
    const { rows } = await this.#manager.query<SlotLease & { readonly alone: boolean }>({
      name: 'framework_renew_handler_leases',
      text: `select handler, slot, token::text as token, abandoned,
               not exists (select from eventlog.processes where process_id <> $1) as alone
             from eventlog.renew_leases($1, $2, $4, $3::double precision * interval '1 millisecond')`,
      values: [processId, [...handlers], leaseMs, [...shards]],
    });
    // A process that is given nothing shares the log with others.
    const alone = rows[0]?.alone ?? false;
    return { leases: rows.map(({ alone: _alone, ...lease }) => lease), alone };
  }

  async release(processId: string): Promise<void> {
    await this.#manager.query({
      name: 'framework_release_handler_leases',
      text: `with gone as (delete from eventlog.processes where process_id = $1)
             update eventlog.leases set process_id = null, token = gen_random_uuid(), abandoned = false
             where process_id = $1`,
      values: [processId],
    });
  }

  async list(): Promise<readonly LeasedSlot[]> {
    const { rows } = await this.#manager.query<{
      handler: string;
      slot: number;
      process_id: string | null;
      until_date: Date | null;
    }>({
      text: `select handler, slot, process_id, until_date
             from eventlog.leases left join eventlog.processes using (process_id) order by handler, slot`,
    });
    return rows.map(({ handler, slot, process_id: processId, until_date: untilDate }) => ({
      handler,
      slot,
      processId: processId ?? undefined,
      untilDate: untilDate ?? undefined,
    }));
  }
}
