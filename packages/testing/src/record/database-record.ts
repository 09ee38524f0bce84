import { Client, escapeIdentifier } from 'pg';

/** An event in the log. */
export interface RecordedEvent {
  readonly id: string;
  readonly actionId: string;
  readonly type: string;
  readonly modelName: string;
  readonly modelId: string;
  readonly modelVersion: number;
  readonly ordinal: number;
  readonly payload: unknown;
}

/** An action in the log of one database. */
export interface RecordedAction {
  readonly id: string;
  readonly name: string;
  readonly params: unknown;
  readonly principal: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** An idempotency key, and the action that was committed with it. */
interface RecordedKey {
  readonly key: string;
  readonly principal: string;
  readonly namespace: string;
  readonly actionId: string;
}

/** The rows of a query. */
export type Rows = readonly Readonly<Record<string, unknown>>[];

/** The contents of one database that matter for the check. */
export interface DatabaseRecord {
  /** Host and database name, for people. */
  readonly place: string;
  readonly actions: readonly RecordedAction[];
  /** All events, in the order of the log. */
  readonly events: readonly RecordedEvent[];
  /** The actions that were committed more than once. */
  readonly doubled: readonly string[];
  readonly keys: readonly RecordedKey[];
  /** The versions of each model's rows, by id. */
  readonly rowVersions: ReadonlyMap<string, ReadonlyMap<string, number>>;
  /**
   * The events that wait in blocked models, as a handler's name and the event's id, once for each name that the handler has or
   * had. Dead letters are included.
   */
  readonly blocked: ReadonlySet<string>;
  /** Describes the dead letters. */
  readonly deadLetters: readonly string[];
}

// Models with a dead letter are left out, because they wait for an operator.
const waitingText = `
  select handler || ' has not handled ' || count(*) || ' events' as what from (
    select c.handler from eventlog.cursors c join eventlog.events e on e.slot = c.slot
    where e.event_type is not null
      and (e.epoch > c.epoch or e.epoch = c.epoch and not pg_visible_in_snapshot(e.xid, c.snapshot))
    union all
    select b.handler from eventlog.blocked_models b where not b.dead
  ) waiting group by handler order by handler`;

const unregisteredText = `
  select name || ' is not registered yet' as what from unnest($1::text[]) as given (name)
  where not exists (
    select from eventlog.handler_names n join eventlog.cursors c using (handler) where n.name = given.name)
  order by name`;

const actionsText = `
  select distinct on (action_id) action_id as id, action_name as name, action_params as params, principal, headers
  from eventlog.events order by action_id, ordinal`;

const eventsText = `
  select id, action_id as "actionId", event_type as type, model_name as "modelName", model_id as "modelId",
         model_version::double precision as "modelVersion", ordinal, payload
  from eventlog.events where event_type is not null order by position`;

const doubledText = `
  select distinct action_name || ' ' || action_id as what from (
    select action_name, action_id from eventlog.events group by action_name, action_id, ordinal having count(*) > 1
  ) doubled`;

const keysText = `select key, principal, namespace, action_id as "actionId" from eventlog.idempotency_keys`;

const blockedText = `
  select n.name || ' ' || e.id as what
  from eventlog.blocked_models b join eventlog.handler_names n using (handler)
  join eventlog.events e on e.model_id = b.model_id and e.model_name = b.model_name and e.event_type is not null
    and (e.model_version, e.ordinal) >= (b.model_version, b.ordinal) and e.id <> all(b.done_ids)`;

const deadText = `
  select handler || ' gave up on ' || event_type || ' of version ' || model_version || ' of ' || model_name || ' ' || model_id ||
         coalesce(': ' || error, '') as what
  from eventlog.blocked_models where dead order by what`;

/** Reads the contents of one database over a connection of its own. */
export class RecordedDatabase {
  readonly #client: Client;

  private constructor(client: Client) {
    this.#client = client;
  }

  /** @param url of a user who may read the schema `eventlog` and the tables of the models */
  static async open(url: string): Promise<RecordedDatabase> {
    const client = new Client({ connectionString: url });
    // Without a listener, a broken connection would end the process. The next query reports the problem.
    client.on('error', () => undefined);
    await client.connect();
    return new RecordedDatabase(client);
  }

  /** Returns the rows of a query. */
  async rows(text: string, values: readonly unknown[] = []): Promise<Rows> {
    return (await this.#client.query<Record<string, unknown>>(text, [...values])).rows;
  }

  /**
   * Describes what handlers still have to do, one text per handler; empty when delivery is at rest.
   *
   * @param handlers the durable names of handlers that must be registered before that
   */
  async waiting(handlers: readonly string[]): Promise<readonly string[]> {
    const unregistered = await this.#rowsOf<{ what: string }>(unregisteredText, [handlers]);
    return [...unregistered.map(({ what }) => what), ...(await this.#texts(waitingText))];
  }

  /** Reads everything in one consistent snapshot. */
  async read(tables: Readonly<Record<string, string>>): Promise<DatabaseRecord> {
    await this.#client.query('begin isolation level repeatable read read only');
    const rowVersions = new Map<string, ReadonlyMap<string, number>>();
    for (const [model, table] of Object.entries(tables)) {
      const name = table.split('.').map(escapeIdentifier).join('.');
      const rows = await this.#rowsOf<{ id: string; version: string }>(
        `select id::text as id, version::text as version from ${name}`,
      );
      rowVersions.set(model, new Map(rows.map(({ id, version }) => [id, Number(version)])));
    }
    const record = {
      place: `${this.#client.host}:${this.#client.port}/${this.#client.database ?? ''}`,
      actions: await this.#rowsOf<RecordedAction>(actionsText),
      events: await this.#rowsOf<RecordedEvent>(eventsText),
      doubled: await this.#texts(doubledText),
      keys: await this.#rowsOf<RecordedKey>(keysText),
      rowVersions,
      blocked: new Set(await this.#texts(blockedText)),
      deadLetters: await this.#texts(deadText),
    };
    await this.#client.query('commit');
    return record;
  }

  close(): Promise<void> {
    return this.#client.end();
  }

  async #texts(text: string): Promise<readonly string[]> {
    return (await this.#rowsOf<{ what: string }>(text)).map(({ what }) => what);
  }

  async #rowsOf<Row extends object>(text: string, values: unknown[] = []): Promise<readonly Row[]> {
    return (await this.#client.query<Row>(text, values)).rows;
  }
}
