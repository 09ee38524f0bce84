import {
  type AnyEventHandler,
  type BatchEventHandler,
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
} from '@framework/events';
import pg from 'pg';

import { WalletCreatedEvent, WalletMoneyDepositedEvent } from '../../src/wallet/wallet.js';
import type { Fault } from './deliveries.js';

const connectionsMax = 4;
/** How long a call takes; with few connections, even a fast machine has events in flight. */
const workSeconds = 0.03;

type Deposited = WalletCreatedEvent | WalletMoneyDepositedEvent;

/** Records each event of an opening or a deposit; then fails as the test wants it for that event. */
@FrameworkEventHandler({ name: 'record-deposits', startFrom: 'beginning' })
class RecordDeposits implements EventHandler<Deposited> {
  readonly event = [WalletCreatedEvent, WalletMoneyDepositedEvent];

  constructor(private readonly pool: pg.Pool) {}

  async handle({ eventId, modelId, modelVersion, attempt }: EventEnvelope<Deposited>): Promise<void> {
    const { rows } = await this.pool.query<{ kind: Fault | null }>(
      `with noted as (
         insert into records.deliveries (handler, event_id, model_id, model_version, attempt)
         values ('record-deposits', $1, $2, $3, $4))
       select (select kind from records.faults where model_id = $2 and model_version = $3) as kind, pg_sleep($5)`,
      [eventId, modelId, modelVersion, attempt, workSeconds],
    );
    const fault = rows[0]?.kind;
    if (fault === 'throws') throw new Error('This event is poison');
    if (fault === 'kills') process.kill(process.pid, 'SIGKILL');
    if (fault === 'kills' || fault === 'hangs') await new Promise(() => undefined);
  }
}

/** Records every event of every model, many at a time. */
@FrameworkEventHandler({ name: 'record-everything', startFrom: 'beginning' })
class RecordEverything implements BatchEventHandler<undefined> {
  readonly event = 'all';

  constructor(private readonly pool: pg.Pool) {}

  async handleBatch(envelopes: readonly EventEnvelope<undefined>[]): Promise<void> {
    await this.pool.query(
      `insert into records.deliveries (handler, event_id, model_id, model_version, attempt)
       select 'record-everything', event_id, model_id, model_version, attempt
       from unnest($1::uuid[], $2::text[], $3::bigint[], $4::integer[]) with ordinality
         as noted (event_id, model_id, model_version, attempt, place)
       order by place`,
      [
        envelopes.map(({ eventId }) => eventId),
        envelopes.map(({ modelId }) => modelId),
        envelopes.map(({ modelVersion }) => modelVersion),
        envelopes.map(({ attempt }) => attempt),
      ],
    );
  }
}

/** Handlers that record durably what they receive, in the database with this URL. */
export function recordingHandlers(url: string): readonly AnyEventHandler[] {
  const pool = new pg.Pool({ connectionString: url, max: connectionsMax });
  return [new RecordDeposits(pool), new RecordEverything(pool)];
}
