import type pg from 'pg';

/** Looks at the server and the database behind each new connection before it is used. */
export interface ConnectionGuard {
  /**
   * To be called outside of a transaction.
   *
   * @throws what is wrong; then the connection must not be used
   */
  ensure(client: pg.ClientBase): Promise<void>;
}
