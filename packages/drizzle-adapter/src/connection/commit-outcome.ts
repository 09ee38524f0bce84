import { type CommitOutcomeUnknownError, FrameworkError, type ShardIdentifier } from '@framework/core';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';

import type { HistoryQuestion, ServerSession } from './server-session.js';
import { storageError } from './storage-error.js';

const pollMs = 50;

/**
 * SQL that makes a query which selects it a commit that waits for the synchronous standbys. So what the query has found is
 * replicated once it is answered. That is not certain before: a commit is visible as soon as its own wait is cancelled, or
 * the server has restarted. Null, and free of cost, on a server without such standbys, and in recovery.
 */
export const replicatedSql: string =
  "(case when not pg_is_in_recovery() and current_setting('synchronous_standby_names') <> '' " +
  "then pg_logical_emit_message(true, 'framework', '') end)";

/** Gives access to the server for questions about a commit. */
export interface CommitQuestions {
  /** How to ask this server for its timeline. */
  readonly history: HistoryQuestion;
  /** Lends a connection for as long as the work runs. */
  use<T>(shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<T>): Promise<T>;
}

/** What one look at the server says: `undecided` may change later, `undecidable` will not. */
type Look = 'committed' | 'not-committed' | 'undecided' | 'undecidable';

interface SessionRow {
  /** Null while the server is in recovery. */
  readonly timeline: string | null;
  /** Whether the process may still be running: one with its pid exists, and is not known to be a later process. */
  readonly working: boolean;
}

/**
 * Looks for a commit in the log until the server process that ran it is gone.
 *
 * A commit that is found is confirmed once the synchronous standbys have it, too, see {@link replicatedSql}.
 *
 * The server cancels a statement after its timeout, so waiting that long is enough. Only a server that must know about
 * the commit can rule it out: one that is not in recovery, and on the timeline on which the commit was sent. If the
 * role may not see when processes started, any process with the same pid counts as that process. Behind a pooler that
 * hides server processes, a commit can only be confirmed, never ruled out.
 *
 * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when the outcome cannot be found out
 */
export async function findCommit(
  pool: CommitQuestions,
  unknown: CommitOutcomeUnknownError,
  waitMs: number,
): Promise<boolean> {
  const deadline = performance.now() + waitMs + pollMs;
  do {
    const look = await inspect(pool, unknown);
    if (look === 'committed') return true;
    if (look === 'not-committed') return false;
    if (look === 'undecidable') break;
    await delay(pollMs);
  } while (performance.now() < deadline);
  throw unknown;
}

async function inspect(pool: CommitQuestions, unknown: CommitOutcomeUnknownError): Promise<Look> {
  try {
    return await pool.use(unknown.shard, (client) => inspectBy(client, pool, unknown));
  } catch (error) {
    const failure = storageError(unknown.shard, error);
    if (FrameworkError.is(failure) && failure.retryable) return 'undecided';
    throw failure;
  }
}

/**
 * Uses one connection, and therefore one server, and checks the process before the log: a process that is gone can add
 * nothing to the log.
 */
async function inspectBy(
  client: pg.PoolClient,
  pool: CommitQuestions,
  unknown: CommitOutcomeUnknownError,
): Promise<Look> {
  const { server, eventId } = sentCommitOf(unknown);
  const [now] = await pool.history.ask<SessionRow>(client, (timeline) => ({
    text:
      `select ${timeline} as timeline, exists (select from pg_stat_activity where pid = $1 ` +
      'and coalesce(extract(epoch from backend_start)::text = $2, true)) as working',
    values: [server?.pid ?? null, server?.started ?? null],
  }));
  const { rowCount } = await client.query({
    text: `select ${replicatedSql} from eventlog.events where action_id = $1 and ($2::uuid is null or id = $2) limit 1`,
    values: [unknown.actionId, eventId ?? null],
  });
  if (rowCount !== 0) return 'committed';
  if (server?.timeline === undefined || now === undefined || now.timeline === null) return 'undecided';
  if (now.timeline !== server.timeline) return 'undecidable';
  return now.working ? 'undecided' : 'not-committed';
}

/** What is needed to find the outcome of a commit. */
export interface SentCommit {
  /** The server process that ran it; `undefined` when a pooler hides it. */
  readonly server: ServerSession | undefined;
  /** One of its rows in the log. The action's id alone would also match rows of another shard in the same database. */
  readonly eventId: string | undefined;
}

/** What is known about a commit whose answer was lost. */
function sentCommitOf({ session }: CommitOutcomeUnknownError): SentCommit {
  return (session as SentCommit | undefined) ?? { server: undefined, eventId: undefined };
}

/**
 * The id of one log row for each of these commits; `undefined` when some commit can only be found by its action's id.
 */
export function sentEventIds(
  unknownCommits: readonly CommitOutcomeUnknownError[],
): readonly string[] | undefined {
  const ids = unknownCommits.map((unknown) => sentCommitOf(unknown).eventId);
  return ids.every((id) => id !== undefined) ? ids : undefined;
}
