import type { Socket } from 'node:net';
import type pg from 'pg';

/** The socket, which `pg` offers to its own pool only: `end()` would wait for a network that is silent. */
export function streamOf(client: pg.Client): Socket {
  return (client as unknown as { readonly connection: { readonly stream: Socket } }).connection.stream;
}

/** Whether a statement was sent that the server has not answered yet. */
export function awaitsAnswer(client: pg.Client): boolean {
  return !(client as pg.Client & { readonly readyForQuery: boolean }).readyForQuery;
}

/** Whether a pooler stands between: the session is another one than the one that was announced. */
export async function isBehindPooler(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]?.pid !== (client as pg.Client & { readonly processID: number }).processID;
}
