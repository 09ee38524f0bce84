import { type CommitOutcomeUnknownError, FrameworkError, type ShardIdentifier } from '@framework/core';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';

import type { HistoryQuestion, ServerSession } from './server-session.js';
import { storageError } from './storage-error.js';

const pollMs = 50;

/** Where the questions are asked. */
export interface CommitQuestions {
  /** How the server tells where it stands in its history. */
  readonly history: HistoryQuestion;
  /** Lends a connection for as long as the work runs. */
  use<T>(shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<T>): Promise<T>;
}

/** What one look at the server says: `undecided` may change, `undecidable` will not. */
type Look = 'committed' | 'not-committed' | 'undecided' | 'undecidable';

interface SessionRow {
  /** Null in recovery. */
  readonly timeline: string | null;
  /** Whether the process may be there still: one with its pid that is not for certain another one. */
  readonly working: boolean;
}

/**
 * Looks for a commit in the log, until the server's process that ran it is gone.
 *
 * The server ends a statement after its timeout, so waiting that long is enough. Only a server that would know can report
 * that a commit did not happen: not in recovery, and on the timeline on which it was sent. Where a role may not see when
 * its processes started, any process with that pid may be the one. Behind a pooler that hides the server's processes, only a
 * commit that happened can be confirmed.
 *
 * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when it cannot be learnt
 */
export async function findCommit(
  pool: CommitQuestions,
  unknown: CommitOutcomeUnknownError,
  waitMs: number,
): Promise<boolean> {
  const deadline = performance.now() + waitMs + pollMs;
  do {
    const look = await lookAt(pool, unknown);
    if (look === 'committed') return true;
    if (look === 'not-committed') return false;
    if (look === 'undecidable') break;
    await delay(pollMs);
  } while (performance.now() < deadline);
  throw unknown;
}

async function lookAt(pool: CommitQuestions, unknown: CommitOutcomeUnknownError): Promise<Look> {
  try {
    return await pool.use(unknown.shard, (client) => lookBy(client, pool, unknown));
  } catch (error) {
    const failure = storageError(unknown.shard, error);
    if (FrameworkError.is(failure) && failure.retryable) return 'undecided';
    throw failure;
  }
}

/** Asks on one connection, which is one server, and in this order: a process that is gone can add nothing to the log. */
async function lookBy(
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
    text: 'select from eventlog.events where action_id = $1 and ($2::uuid is null or id = $2) limit 1',
    values: [unknown.actionId, eventId ?? null],
  });
  if (rowCount !== 0) return 'committed';
  if (server?.timeline === undefined || now === undefined || now.timeline === null) return 'undecided';
  if (now.timeline !== server.timeline) return 'undecidable';
  return now.working ? 'undecided' : 'not-committed';
}

/** By what the outcome of a commit is found. */
export interface SentCommit {
  /** The process that ran it; `undefined` when something between client and server hides it. */
  readonly server: ServerSession | undefined;
  /** One of its rows in the log; the action's id would also find those on another shard of the database. */
  readonly eventId: string | undefined;
}

/** What is known of a commit whose answer was lost. */
function sentCommitOf({ session }: CommitOutcomeUnknownError): SentCommit {
  return (session as SentCommit | undefined) ?? { server: undefined, eventId: undefined };
}

/** One row of the log for each of these commits; `undefined` when any row of the action stands for one of them. */
export function sentEventIds(
  unknownCommits: readonly CommitOutcomeUnknownError[],
): readonly string[] | undefined {
  const ids = unknownCommits.map((unknown) => sentCommitOf(unknown).eventId);
  return ids.every((id) => id !== undefined) ? ids : undefined;
}
