import type pg from 'pg';

/** What operators are told of a server that answers and takes no writes. */
export const readOnlyReason: string =
  'the server takes no writes (default_transaction_read_only is on): switch that off for the server, the database and the ' +
  'role, or have the address lead to the server that leads';

/** A server takes no writes, and what it reads may be old: a standby, or one that is about to take over. */
export class ServerInRecoveryError extends Error {
  override readonly name = 'ServerInRecoveryError';

  constructor() {
    super(
      'the server is in recovery: it does not lead, or not yet. Promote it, or have the address lead to the server that leads',
    );
  }
}

/** A server is not in recovery, and takes no writes all the same. */
export class ReadOnlyServerError extends Error {
  override readonly name = 'ReadOnlyServerError';

  constructor() {
    super(readOnlyReason);
  }
}

/** @throws ServerInRecoveryError when the server behind a connection is in recovery */
export async function refuseInRecovery(client: pg.ClientBase): Promise<void> {
  await askForRole(client);
}

/** @throws ServerInRecoveryError when the server behind a new connection is in recovery, an error when it takes no writes */
export async function refuseWithoutWrites(client: pg.ClientBase): Promise<void> {
  const { isReadOnly } = await askForRole(client);
  if (isReadOnly) throw new ReadOnlyServerError();
}

async function askForRole(client: pg.ClientBase): Promise<{ readonly isReadOnly: boolean }> {
  const { rows } = await client.query<{ recovering: boolean; readonly: boolean }>(
    "select pg_is_in_recovery() as recovering, current_setting('transaction_read_only')::boolean as readonly",
  );
  if (rows[0]?.recovering === true) throw new ServerInRecoveryError();
  return { isReadOnly: rows[0]?.readonly === true };
}
