import type { TestDatabase } from '@framework/testing/postgres';
import { rowsOf } from '../database-session.js';

/** How a handler fails: with an error, by ending its process, or by not returning. */
export type Fault = 'throws' | 'kills' | 'hangs';

/** One call of a recording handler. */
export interface RecordedDelivery {
  readonly eventId: string;
  readonly modelId: string;
  readonly version: number;
  readonly attempt: number;
}

/** What the recording handlers of all processes have received, in a database of the test. */
export class Deliveries {
  readonly #database: TestDatabase;

  private constructor(database: TestDatabase) {
    this.#database = database;
  }

  /** Creates the tables of the records. */
  static async in(database: TestDatabase): Promise<Deliveries> {
    await rowsOf(
      database,
      `create schema records
       create table deliveries (
         position      bigint generated always as identity primary key,
         handler       text    not null,
         event_id      uuid    not null,
         model_id      text    not null,
         model_version bigint  not null,
         attempt       integer not null)
       create table faults (model_id text, model_version bigint, kind text not null, primary key (model_id, model_version))`,
    );
    return new Deliveries(database);
  }

  /** The database to which the processes write. */
  get url(): string {
    return this.#database.url;
  }

  /** How many events a handler has received, each counted once. */
  async count(handler: string): Promise<number> {
    const text =
      'select count(distinct event_id)::integer as count from records.deliveries where handler = $1';
    return Number((await rowsOf(this.#database, text, [handler]))[0]?.['count']);
  }

  /** What a handler has received, in chronological order; if a model is given, only its events. */
  async of(handler: string, modelId?: string): Promise<readonly RecordedDelivery[]> {
    const rows = await rowsOf(
      this.#database,
      `select event_id, model_id, model_version, attempt from records.deliveries
       where handler = $1 and model_id = coalesce($2, model_id) order by position`,
      [handler, modelId],
    );
    return rows.map((row) => ({
      eventId: String(row['event_id']),
      modelId: String(row['model_id']),
      version: Number(row['model_version']),
      attempt: Number(row['attempt']),
    }));
  }

  /** Makes `record-deposits` fail for the event of one version of a wallet, until it is fixed. */
  async break(modelId: string, version: number, kind: Fault): Promise<void> {
    await rowsOf(this.#database, 'insert into records.faults values ($1, $2, $3)', [modelId, version, kind]);
  }

  /** Lets every event succeed from now on. */
  async fix(): Promise<void> {
    await rowsOf(this.#database, 'delete from records.faults');
  }
}

/** The versions of each model in the order of their first deliveries. */
export function firstVersions(
  deliveries: readonly RecordedDelivery[],
): ReadonlyMap<string, readonly number[]> {
  const seen = new Set<string>();
  const versions = new Map<string, number[]>();
  for (const { eventId, modelId, version } of deliveries) {
    if (seen.has(eventId)) continue;
    seen.add(eventId);
    const own = versions.get(modelId) ?? [];
    versions.set(modelId, own);
    own.push(version);
  }
  return versions;
}
