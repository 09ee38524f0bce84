import { Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { Client } from 'pg';

import { type Cluster, superuser } from './cluster.js';

const reconnectIntervalMs = 100;
// Any fixed number: it is only compared within the databases of embedded servers.
const ownerLock = 5_063_219_744;
const passwordRefused = '28P01';

/** The result of an attempt to become a server's owner. */
export type Ownership =
  | { readonly kind: 'owned'; readonly session: OwnerSession }
  | { readonly kind: 'taken'; readonly ownerPid: string }
  | { readonly kind: 'refused'; readonly cause: unknown }
  | { readonly kind: 'unreachable'; readonly cause: unknown };

type Attempt =
  | { readonly kind: 'owned'; readonly client: Client; readonly socket: Socket }
  | Exclude<Ownership, { readonly kind: 'owned' }>;

/**
 * Marks a running server as owned by this process for as long as this process lives.
 *
 * It is a session that holds a lock in the server itself. When the owner ends, for whatever reason, the session ends
 * and the lock becomes free. So a process that finds a running server can tell for certain whether somebody uses it or
 * whether it is orphaned. With scram, the login also proves that the server knows the cluster's password, and is
 * therefore the cluster's own.
 */
export class OwnerSession {
  readonly #cluster: Cluster;
  readonly #port: number;
  #client: Client;
  #socket: Socket;
  #closed = false;

  private constructor(cluster: Cluster, port: number, client: Client, socket: Socket) {
    this.#cluster = cluster;
    this.#port = port;
    this.#client = client;
    this.#socket = socket;
    this.#keep(client, socket);
  }

  /** Becomes the owner unless another process is. Tries once, and does not wait for the server. */
  static async tryOpen(cluster: Cluster, port: number): Promise<Ownership> {
    const attempt = await tryLock(cluster, port);
    if (attempt.kind !== 'owned') return attempt;
    return { kind: 'owned', session: new OwnerSession(cluster, port, attempt.client, attempt.socket) };
  }

  /** Gives up ownership. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#socket.ref();
    await this.#client.end().catch(() => undefined);
  }

  #keep(client: Client, socket: Socket): void {
    this.#client = client;
    this.#socket = socket;
    socket.unref(); // Owning a server must not keep a process alive.
    client.once('end', () => void this.#reopen());
  }

  // The session may be ended by an administrator, or by the server after one of its processes crashed.
  async #reopen(): Promise<void> {
    while (!this.#closed) {
      await pause(reconnectIntervalMs, undefined, { ref: false });
      const attempt = await tryLock(this.#cluster, this.#port);
      if (attempt.kind === 'unreachable' || attempt.kind === 'refused') continue;
      if (attempt.kind === 'owned') this.#keep(attempt.client, attempt.socket);
      if (this.#closed) await this.close();
      return;
    }
  }
}

async function tryLock(cluster: Cluster, port: number): Promise<Attempt> {
  const socket = new Socket();
  const client = new Client({
    stream: () => socket,
    host: '127.0.0.1',
    port,
    user: superuser,
    password: cluster.password,
    database: 'postgres',
    application_name: `embedded-postgres owner ${process.pid}`,
    connectionTimeoutMillis: 5_000,
  });
  client.on('error', () => undefined); // A lost session also emits `end`, which is handled where the session is kept.
  try {
    await client.connect();
    const { rows } = await client.query<{ readonly locked: boolean; readonly owner: string | null }>(
      `select pg_try_advisory_lock($1) as locked,
              (select max(substring(application_name from 'embedded-postgres owner (\\d+)')) from pg_stat_activity
                where pid <> pg_backend_pid()) as owner`,
      [ownerLock],
    );
    if (rows[0]?.locked) return { kind: 'owned', client, socket };
    await client.end();
    return { kind: 'taken', ownerPid: rows[0]?.owner ?? 'unknown' };
  } catch (cause) {
    await client.end().catch(() => undefined);
    const refused = (cause as { readonly code?: string }).code === passwordRefused;
    return { kind: refused ? 'refused' : 'unreachable', cause };
  }
}
