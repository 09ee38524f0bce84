/** What a process or a person does with a database. */
export type DatabaseRole = 'migrator' | 'application' | 'delivery' | 'relay' | 'operator';

/** The roles of a database, from the most powerful one to the one that only reads. */
export const databaseRoles: readonly DatabaseRole[] = [
  'migrator',
  'application',
  'delivery',
  'relay',
  'operator',
];

/** What a role may do with a table. */
export type TablePrivilege = 'select' | 'insert' | 'update' | 'delete';

/** The roles that may do something with an object, and what. The migrator owns the tables, so it is never listed. */
export type Privileges<Privilege extends string> = Readonly<
  Partial<Record<DatabaseRole, readonly Privilege[]>>
>;

/** The privileges that every process needs to open a database. */
const readByProcesses = { application: ['select'], delivery: ['select'], relay: ['select'] } as const;

/** The tables that delivery fills and empties. Relays have them in common with handlers. */
const keptByDelivery = {
  delivery: ['select', 'insert', 'update', 'delete'],
  relay: ['select', 'insert', 'update', 'delete'],
} as const;

/**
 * What each role may do with the framework's tables, by their names in the schema `eventlog`. The operator reads them all.
 *
 * The application reads the place of each handler, and what is blocked, to delete the idempotency keys of handlers, and for the
 * health of relays.
 */
export const frameworkTables: Readonly<Record<string, Privileges<TablePrivilege>>> = {
  events: { application: ['select', 'insert'], delivery: ['select'], relay: ['select'] },
  idempotency_keys: { application: ['select', 'insert', 'update', 'delete'] },
  shards: readByProcesses,
  migrations: readByProcesses,
  epochs: { delivery: ['select'], relay: ['select'] },
  server_run: { application: ['select'], delivery: ['select', 'insert'], relay: ['select', 'insert'] },
  processes: keptByDelivery,
  slots: { delivery: ['select'], relay: ['select'] },
  leases: { delivery: ['select', 'insert', 'update'], relay: ['select', 'insert', 'update'] },
  // Only delivery pauses and retires handlers, for an operator.
  handlers: {
    application: ['select'],
    delivery: ['select', 'insert', 'update', 'delete'],
    relay: ['select', 'insert'],
  },
  // A process that answers requests reports the progress of relays by their names.
  handler_names: { application: ['select'], delivery: ['select', 'insert'], relay: ['select', 'insert'] },
  cursors: {
    application: ['select'],
    delivery: ['select', 'insert', 'update'],
    relay: ['select', 'insert', 'update'],
  },
  blocked_models: { application: ['select'], ...keptByDelivery },
  // A role that may change delivery records its changes; no role may change the record.
  operator_audit: { delivery: ['select', 'insert'] },
};

/** The sequences of the schema `eventlog`. Those of identity columns need no privilege. */
export const frameworkSequences: Readonly<Record<string, Privileges<'usage'>>> = {
  events_position_seq: { application: ['usage'] },
  migrations_id_seq: {},
};

/**
 * The functions of the schema `eventlog` that only some roles may call, because they act as their owner: they create and drop
 * partitions of the log.
 */
export const frameworkFunctions: Readonly<Record<string, Privileges<'execute'>>> = {
  'create_partitions(integer)': { delivery: ['execute'], relay: ['execute'] },
  'drop_partition(text)': { delivery: ['execute'] },
  'trim_default_partition(timestamp with time zone,integer)': { delivery: ['execute'] },
};

/**
 * The other functions of the schema. They run with the privileges of their caller, apart from `ensure_epoch`: every connection
 * calls it first, and it changes nothing on a server that the log knows.
 */
export const functionsForAll: readonly string[] = [
  'ensure_epoch()',
  'is_ahead_of_server(integer)',
  'lease_shares(text)',
  'raise_key_taken()',
  'raise_stale(integer)',
  'renew_leases(text,text[],text[],interval,uuid[])',
  'server_history()',
  'server_identity()',
];

/** What the application may do with its own tables, unless it says otherwise. The framework deletes no row of a model. */
const ownTable: readonly TablePrivilege[] = ['select', 'insert', 'update'];

/** Something in a database on which roles have privileges. */
export interface RoleObject {
  readonly kind: 'database' | 'schema' | 'table' | 'partition' | 'view' | 'sequence' | 'function';
  /** The schema that it is in, or that it is; null for the database. */
  readonly schema: string | null;
  /** Its name within the schema; for a function with the types of its arguments. */
  readonly name: string;
  /** How statements name it. */
  readonly sql: string;
}

/** The decisions of an application about its own tables, by their names. */
type OwnTables = Readonly<Record<string, readonly TablePrivilege[]>>;

/** The name by which an application decides about one of its tables; `undefined` for everything else. */
export function ownNameOf({ kind, schema, name }: RoleObject): string | undefined {
  if ((kind !== 'table' && kind !== 'partition' && kind !== 'view') || isOfFramework(schema))
    return undefined;
  return schema === 'public' ? name : `${schema}.${name}`;
}

/**
 * What each role is to be able to do with an object; `undefined` for one that this release does not know, such as a table of a
 * later one.
 */
export function wantedOn(object: RoleObject, own: OwnTables): Privileges<string> | undefined {
  const { kind, schema, name } = object;
  if (kind === 'database') return onDatabase;
  if (kind === 'schema') return onSchema(object);
  // What is read and written through the table needs no privilege on its partitions, where it could evade those on the table.
  if (kind === 'partition') return { application: own[ownNameOf(object) ?? ''] ?? [] };
  if (schema === 'drizzle') return { ...readByProcesses, operator: ['select'] };
  if (schema !== 'eventlog') return onOwn(object, own);
  if (kind === 'sequence') return frameworkSequences[name];
  if (kind === 'function') return frameworkFunctions[name];
  const given = frameworkTables[name];
  return given && { ...given, operator: ['select'] };
}

const connect = ['connect'];

/** The migrator creates the schemas of the framework and of Drizzle. */
const onDatabase: Privileges<string> = {
  migrator: ['connect', 'create'],
  application: connect,
  delivery: connect,
  relay: connect,
  operator: connect,
};

function onSchema({ name }: RoleObject): Privileges<string> {
  const usage = ['usage'];
  if (isOfFramework(name)) return { application: usage, delivery: usage, relay: usage, operator: usage };
  const own = { application: usage, operator: usage };
  // Where Drizzle's migrations create tables, unless they name another schema.
  return name === 'public' ? { migrator: ['usage', 'create'], ...own } : own;
}

function onOwn(object: RoleObject, own: OwnTables): Privileges<string> {
  if (object.kind === 'sequence') return { application: ['usage'] };
  const byDefault = object.kind === 'view' ? ['select'] : ownTable;
  return { application: own[ownNameOf(object) ?? ''] ?? byDefault, operator: ['select'] };
}

function isOfFramework(schema: string | null): boolean {
  return schema === 'eventlog' || schema === 'drizzle';
}
