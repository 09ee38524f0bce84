import type { LeasedSlot, SlotLease, SlotLeases } from '@framework/core';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';

/** Who works on which slots of one PostgreSQL database. */
export class PgSlotLeases implements SlotLeases {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async renew(processId: string, leaseMs: number): Promise<readonly SlotLease[]> {
    const { rows } = await this.#manager.query<SlotLease>({
      name: 'framework_renew_leases',
      text: `select slot, token::text as token, abandoned
             from eventlog.renew_leases($1, $2::double precision * interval '1 millisecond')`,
      values: [processId, leaseMs],
    });
    return rows;
  }

  async release(processId: string): Promise<void> {
    await this.#manager.query({
      name: 'framework_release_leases',
      text: `with gone as (delete from eventlog.processes where process_id = $1)
             update eventlog.slots set process_id = null, token = token + 1 where process_id = $1`,
      values: [processId],
    });
  }

  async list(): Promise<readonly LeasedSlot[]> {
    const { rows } = await this.#manager.query<{
      slot: number;
      process_id: string | null;
      until_date: Date | null;
    }>({
      text: `select slot, process_id, until_date
             from eventlog.slots left join eventlog.processes using (process_id) order by slot`,
    });
    return rows.map(({ slot, process_id: processId, until_date: untilDate }) => ({
      slot,
      processId: processId ?? undefined,
      untilDate: untilDate ?? undefined,
    }));
  }
}
