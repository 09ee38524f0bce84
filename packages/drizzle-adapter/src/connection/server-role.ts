import type pg from 'pg';

/** The reason given for a server that answers but refuses writes. */
export const readOnlyReason: string =
  'the server takes no writes (default_transaction_read_only is on): turn that off for the server, the database and the ' +
  'role, or point the address at the primary';

/** The server refuses writes, and its reads may be old: it is a standby, or one that is being promoted. */
export class ServerInRecoveryError extends Error {
  override readonly name = 'ServerInRecoveryError';

  constructor() {
    super(
      'the server is in recovery, so it is not the primary, or not yet. Promote it, or point the address at the primary',
    );
  }
}

/** The server is not in recovery, but refuses writes. */
export class ReadOnlyServerError extends Error {
  override readonly name = 'ReadOnlyServerError';

  constructor() {
    super(readOnlyReason);
  }
}

/** @throws ServerInRecoveryError when the server is in recovery */
export async function refuseInRecovery(client: pg.ClientBase): Promise<void> {
  await askForRole(client);
}

/** @throws ServerInRecoveryError when the server is in recovery, and ReadOnlyServerError when it refuses writes */
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
